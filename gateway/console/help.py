"""The documentation at `/help`: the site that `make docs` builds and puts beside this module, as one ZIP file.

A page has two addresses: its path in the repository, `/help/docs/quickstart.md`, which advice uses, and its path in
the site, `/help/docs/quickstart.html`. In a clone without a built site, the Markdown of a page is shown.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import re
from functools import lru_cache
from mimetypes import guess_type
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from gateway.console.pages import page
from gateway.console.static_files import KEPT_FOREVER
from gateway.web.authentication import HELP
from gateway.web.authorisation import for_everybody
from gateway.web.dependencies import Router

#: The file that `make docs` writes. A running gateway serves a new site at once.
ARCHIVE = Path(__file__).with_name("help.zip")
#: The repository, if this is a clone of it.
CLONE = Path(__file__).parents[2]
_IN_CLONE = re.compile(r"(?:docs/(?:[\w-]+/)*)?[\w-]+\.md")
#: Files of the site whose names have a hash of their content.
_NAMED_BY_CONTENTS = re.compile(r"assets/.+\.[0-9a-f]{8}\.min\.\w+")
#: Scripts without a `type`. A script with a `type` contains data, to which the policy does not apply.
_INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
#: Inline styles are allowed, because tables align their cells by them, and the search adds a style to the page.
_POLICY = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


class SiteFile(NamedTuple):
    data: bytes
    #: The data compressed with gzip; `None` if this would not be smaller.
    compressed: bytes | None
    type: str
    tag: str
    policy: str


class Archive(NamedTuple):
    path: Path
    #: The time of the last change in nanoseconds since 1970, by which a new archive is noticed.
    changed_at: int


def _find(path: Path, name: str) -> SiteFile | None:
    """A file of the site; `None` if it has no such file. Raises `FileNotFoundError` if there is no archive."""
    return _read(Archive(path, path.stat().st_mtime_ns), name)


@lru_cache(maxsize=64)
def _read(archive: Archive, name: str) -> SiteFile | None:
    # opened anew for each file, because forked processes would share the position in an open file
    with ZipFile(archive.path) as site:
        if name not in site.namelist():
            return None
        data = site.read(name)
    kind = guess_type(name)[0] or "text/plain"
    compressed = None if kind.startswith("image/") else gzip.compress(data, 5, mtime=0)
    scripts = _INLINE_SCRIPT.findall(data) if kind == "text/html" else []
    hashes = [base64.b64encode(hashlib.sha256(text).digest()).decode() for text in scripts]
    policy = _POLICY.format(scripts="".join(f" 'sha256-{one}'" for one in dict.fromkeys(hashes)))
    return SiteFile(data, compressed, kind, f'"{hashlib.sha256(data).hexdigest()[:16]}"', policy)


def _in_site(path: str) -> str:
    """The name in the site of the file that the repository has at `path`."""
    folder, slash, name = path.rpartition("/")
    if name in {"", "README.md"}:
        return f"{folder}{slash}index.html"
    return path.removesuffix(".md") + ".html" if path.endswith(".md") else path


router = Router(include_in_schema=False)


@router.get(HELP.rstrip("/"))
@for_everybody
async def help_without_slash() -> Response:
    """Redirect to the address with a slash, because the links of the first page are relative to the folder."""
    return RedirectResponse(HELP)


@router.get(HELP + "{path:path}")
@for_everybody
async def help_page(path: str, request: Request) -> Response:
    try:
        found = await asyncio.to_thread(_find, request.app.state.help_archive, _in_site(path))
    except FileNotFoundError:
        asked = _source(path)
        written = await asyncio.to_thread(_written, request.app.state.help_clone, asked)
        status = 200 if written else 404
        return page(request, "help.html", status_code=status, is_built=False, asked=asked, written=written)
    if found is None:
        return page(request, "help.html", status_code=404, is_built=True, asked=path)
    return _answer(found, path, request)


def _source(path: str) -> str:
    """The path in the repository of the page that the site has at `path`."""
    name = _in_site(path)
    if name.rpartition("/")[2] == "index.html":
        return name.removesuffix("index.html") + "README.md"
    return name.removesuffix(".html") + ".md" if name.endswith(".html") else name


class HeadedText(NamedTuple):
    #: The anchor that the site makes from the heading.
    anchor: str
    text: str


def _written(clone: Path, source: str) -> list[HeadedText]:
    """The Markdown of the page, divided by its headings; empty if this is not a clone, or has no such page."""
    file = clone / source
    if not _IN_CLONE.fullmatch(source) or not (clone / "docs/zensical.toml").exists() or not file.is_file():
        return []
    parts = re.split(r"^(?=#+ )", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [HeadedText(_anchor(part.partition("\n")[0]), part) for part in parts if part]


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")


def _answer(found: SiteFile, path: str, request: Request) -> Response:
    headers = {
        "Cache-Control": KEPT_FOREVER if _NAMED_BY_CONTENTS.fullmatch(path) else "no-cache",
        "Content-Security-Policy": found.policy,
        "ETag": found.tag,
        "Vary": "Accept-Encoding",
    }
    if found.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if found.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.compressed, media_type=found.type, headers=headers | {"Content-Encoding": "gzip"})
    return Response(found.data, media_type=found.type, headers=headers)
