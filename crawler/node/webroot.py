"""Scrapyd's console and services behind this node's door."""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO, Any

from scrapyd import website
from scrapyd.config import Config
from scrapyd.webservice import WsResource
from twisted.web import http
from twisted.web.resource import IResource, Resource
from twisted.web.server import Request

from crawler.node.config import load_settings
from crawler.node.door import open_door
from crawler.node.project_names import canonical
from gateway.contract.outbox import LOG, AttemptId, HostileFileError, attempt_dir, open_file

_CORS = (b"Access-Control-Allow-Origin", b"Access-Control-Allow-Methods", b"Access-Control-Allow-Headers")


class Root(website.Root):
    """Scrapyd's pages, as they are. Scrapyd puts the password in front of this; the rest of the door is here, at the
    one place that every request passes.
    """

    def __init__(self, config: Config, app: Any) -> None:
        super().__init__(config, app)
        bind_address = os.environ.get("SCRAPYD_BIND_ADDRESS") or config.get("bind_address", "127.0.0.1")
        self._door = open_door(bind_address, load_settings().node_base_url)
        self.putChild(b"logs", Logs(self.logs_dir, "text/plain"))

    def putChild(self, path: bytes, child: IResource) -> None:  # noqa: N802 - Twisted's name
        super().putChild(path, WithoutCors(child) if isinstance(child, WsResource) else child)

    def getChildWithDefault(self, path: bytes, request: Request) -> Any:  # noqa: N802 - Twisted's name
        if refusal := self._door.refusal(request.getHeader("host"), request.getHeader("origin")):
            return Refused(refusal)
        while not path and request.postpath:  # scrapyd-client puts two slashes after a URL that ends with one
            path = request.postpath.pop(0)
            request.prepath = [*(request.prepath or []), path]
        if names := request.args.get(b"project"):
            known = self.poller.queues
            request.args[b"project"] = [canonical(name.decode("utf-8", "replace"), known).encode() for name in names]
        return super().getChildWithDefault(path, request)


class WithoutCors(Resource):
    """A service without the leave for every page on the web to read it, which Scrapyd gives."""

    def __init__(self, service: WsResource) -> None:
        super().__init__()
        self._service = service

    def render(self, request: Request) -> Any:
        content = self._service.render(request)
        for header in _CORS:
            request.responseHeaders.removeHeader(header)
        return content


class Refused(Resource):
    isLeaf = True  # noqa: N815 - Twisted's name

    def __init__(self, why: str) -> None:
        super().__init__()
        self._why = why

    def render(self, request: Request) -> bytes:
        request.setResponseCode(http.FORBIDDEN)
        request.setHeader(b"Content-Type", b"text/plain; charset=utf-8")
        return f"403: {self._why}\n".encode()


class Logs(website.File):
    """The logs' folder. A log may vanish at any time; Scrapyd's listing fails on a link that leads nowhere.

    The log of an attempt is a link to a file in its folder. Any other link was put there by a spider.
    """

    _size = 0

    def openForReading(self) -> IO[bytes]:  # noqa: N802 - Twisted's name
        path = Path(os.fsdecode(self.path))
        try:
            log = os.fdopen(open_file(_attempt_log(path) or path), "rb")
        except HostileFileError as error:
            raise PermissionError(errno.EACCES, str(error)) from error
        self._size = os.fstat(log.fileno()).st_size
        return log

    def getFileSize(self) -> int:  # noqa: N802 - Twisted's name
        return self._size

    def listNames(self) -> list[str]:  # noqa: N802 - Twisted's name
        return [name for name in super().listNames() if self.child(name).exists()]


def _attempt_log(link: Path) -> Path | None:
    """The log that the launcher's link leads to; `None` for everything else, links of other people included."""
    attempt = AttemptId.parse(link.stem)
    log = attempt_dir(load_settings().outbox, attempt) / LOG if attempt else None
    return log if log and link.is_symlink() and link.readlink() == log else None
