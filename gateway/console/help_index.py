"""`/console/help-pages`: the titles of the documentation and its headings, which the palette (Ctrl-K) searches."""

from __future__ import annotations

import asyncio
import html
import re
from functools import lru_cache
from pathlib import Path
from zipfile import ZipFile

import orjson
from fastapi import Request, Response

from gateway.access.keys import Scope
from gateway.web.authentication import HELP
from gateway.web.authorisation import needs
from gateway.web.dependencies import Router

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


def _titles(archive: Path) -> bytes:
    try:
        return _read(archive, archive.stat().st_mtime_ns)
    except FileNotFoundError:
        return b"[]"


@lru_cache(maxsize=2)
def _read(archive: Path, _changed_at: int) -> bytes:
    with ZipFile(archive) as site:
        items = orjson.loads(site.read("search.json"))["items"]
    shown = [one for one in items if one["location"].startswith(_FOLDER) and not one["location"].startswith(_NOT)]
    titles = {one["location"]: html.unescape(_TAG.sub("", one["title"])) for one in shown}
    return orjson.dumps(
        [
            (titles[one["location"]], titles.get(one["location"].partition("#")[0], ""), HELP + one["location"])
            for one in shown
            if titles[one["location"]]
        ]
    )
