"""What the palette (Ctrl-K) knows of the documentation: `/console/help-pages` has the titles of its pages and
headings, and `/console/help-found` searches their texts.
"""

from __future__ import annotations

import asyncio
import html
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple
from zipfile import ZipFile

import orjson
from fastapi import Query, Request, Response
from pydantic import Field

from gateway.access.keys import Scope
from gateway.web.authentication import HELP
from gateway.web.authorisation import needs
from gateway.web.dependencies import Router
from gateway.web.schemas.types import QueryModel

router = Router(include_in_schema=False)

#: The part of the site that users read: not the changelog or the decisions.
_FOLDER, _NOT = "docs/", "docs/decisions/"
#: Titles are HTML: `<code>schedules</code>`.
_TAG = re.compile(r"<[^>]*>")


@router.get("/console/help-pages")
@needs(Scope.READ, by_project=True)
async def help_pages(request: Request) -> Response:
    """`[[title, title of its page, address], …]`; empty if the documentation is not built here."""
    found = await asyncio.to_thread(_titles, request.app.state.help_archive)
    return Response(found, media_type="application/json", headers={"Cache-Control": "private, max-age=3600"})


#: At most this many sections are found, by at most this many words. A title counts as much as so many words of text.
_MOST, _WORDS, _TITLE = 8, 8, 20


class HelpFoundQuery(QueryModel):
    q: Annotated[str, Field(max_length=200)] = ""


@router.get("/console/help-found")
@needs(Scope.READ, by_project=True)
async def help_found(request: Request, query: Annotated[HelpFoundQuery, Query()]) -> Response:
    """The sections that have all of these words, the best first, as `/console/help-pages` has them."""
    found = await asyncio.to_thread(find_help, request.app.state.help_archive, query.q)
    return Response(orjson.dumps(found), media_type="application/json", headers={"Cache-Control": "no-store"})


def find_help(archive: Path, text: str) -> list[tuple[str, str, str]]:
    """Title, title of the page and address of the sections that have all words of the text, the best first."""
    words = text.lower().split()[:_WORDS]
    scored = [(_score(one, words), one) for one in _sections(archive)] if words else []
    best = sorted((pair for pair in scored if pair[0]), key=lambda pair: -pair[0])[:_MOST]
    return [(one.title, one.page, one.address) for _, one in best]


class HelpSection(NamedTuple):
    title: str
    #: The title of its page.
    page: str
    address: str
    #: All that it says, in small letters.
    text: str


def _score(section: HelpSection, words: list[str]) -> int:
    """0 if a word is missing. The words side by side count more than the same words apart."""
    title = section.title.lower()
    if any(word not in title and word not in section.text for word in words):
        return 0
    phrase = " ".join(words)
    together = section.text.count(phrase) + section.text.count(phrase.replace(" ", "")) * (len(words) > 1)
    return 1 + _TITLE * (phrase in title) + sum(_TITLE // 4 for word in words if word in title) + min(together, 10)


def _sections(archive: Path) -> list[HelpSection]:
    try:
        return _read(archive, archive.stat().st_mtime_ns)
    except FileNotFoundError:
        return []


def _titles(archive: Path) -> bytes:
    return orjson.dumps([(one.title, one.page, one.address) for one in _sections(archive)])


@lru_cache(maxsize=2)
def _read(archive: Path, _changed_at: int) -> list[HelpSection]:
    with ZipFile(archive) as site:
        items = orjson.loads(site.read("search.json"))["items"]
    shown = [one for one in items if one["location"].startswith(_FOLDER) and not one["location"].startswith(_NOT)]
    titles = {one["location"]: html.unescape(_TAG.sub("", one["title"])) for one in shown}
    return [
        HelpSection(
            titles[one["location"]],
            titles.get(one["location"].partition("#")[0], ""),
            HELP + one["location"],
            html.unescape(_TAG.sub("", one.get("text", ""))).lower(),
        )
        for one in shown
        if titles[one["location"]]
    ]
