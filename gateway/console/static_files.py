"""The console's style sheet, scripts and pictures. Their addresses change with their content."""

from __future__ import annotations

import gzip
import hashlib
from functools import cached_property, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from gateway.web.authentication import STATIC as FOLDER
from gateway.web.authorisation import for_everybody
from gateway.web.dependencies import Router

#: The content security policy of every page and every script of the console. Scripts have it, too, because a web
#: worker uses the policy of its own script.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "worker-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
KEPT_FOREVER = "public, max-age=31536000, immutable"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class StaticFiles:
    """The files of one folder, in memory: they are few and small."""

    def __init__(self, folder: Traversable) -> None:
        self._files = dict(_walk(folder))

    @cached_property
    def version(self) -> str:
        """A hash of all files. There is one version for all, because modules import each other by
        relative addresses.
        """
        digest = hashlib.sha256()
        for name, data in sorted(self._files.items()):
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()[:12]

    def address(self, name: str) -> str:
        """The address of a file, which has the version. Raises `KeyError` if there is no such file."""
        if name not in self._files:
            raise KeyError(name)
        return f"{FOLDER}{self.version}/{name}"

    def answer(self, version: str, name: str, *, compressed: bool) -> Response | None:
        """The answer with a file; `None` if there is no such file. For an address of an older version it is the
        newest file, which the browser must not store.
        """
        if name not in self._files:
            return None
        headers = {"Content-Security-Policy": POLICY, "Vary": "Accept-Encoding"}
        headers["Cache-Control"] = KEPT_FOREVER if version == self.version else "no-cache"
        data = self._files[name]
        if compressed:
            data = self._compressed(name)
            headers["Content-Encoding"] = "gzip"
        return Response(data, media_type=_TYPES.get(name[name.rfind(".") :], "text/plain"), headers=headers)

    @lru_cache  # noqa: B019 - there is one such object, for as long as the process lives
    def _compressed(self, name: str) -> bytes:
        return gzip.compress(self._files[name], mtime=0)


def _walk(folder: Traversable, prefix: str = "") -> list[tuple[str, bytes]]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        else:
            found.append((prefix + entry.name, entry.read_bytes()))
    return found


STATIC = StaticFiles(files(__package__) / "static")

router = Router(include_in_schema=False)


@router.get(FOLDER + "{version}/{name:path}")
@for_everybody
async def static_file(version: str, name: str, request: Request) -> Response:
    found = STATIC.answer(version, name, compressed="gzip" in request.headers.get("accept-encoding", ""))
    if found is None:
        raise HTTPException(404)
    return found
