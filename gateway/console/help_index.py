"""Where the palette (Ctrl-K) finds the worker that searches the documentation: the one of the site at `/help`."""

from __future__ import annotations

import asyncio
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

_WORKER = re.compile(r"assets/javascripts/workers/search\.[0-9a-f]{8}\.min\.js")


@router.get("/console/help-search")
@needs(Scope.READ, by_project=True)
async def help_search(request: Request) -> Response:
    """`{"worker": address}`; null if the documentation is not built here."""
    found = await asyncio.to_thread(search_worker, request.app.state.help_archive)
    return Response(
        orjson.dumps({"worker": found and HELP + found}),
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


def search_worker(archive: Path) -> str | None:
    """The name of the file in the site; `None` if there is no site."""
    try:
        return _named(archive, archive.stat().st_mtime_ns)
    except FileNotFoundError:
        return None


@lru_cache(maxsize=2)
def _named(archive: Path, _changed_at: int) -> str | None:
    with ZipFile(archive) as site:
        return next(filter(_WORKER.fullmatch, site.namelist()), None)
