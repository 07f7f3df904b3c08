"""Scrapyd's console and web services, and the checks of who may use them."""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import errno
import os
from io import BytesIO
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from scrapyd import website
from scrapyd.webservice import WsResource
from twisted.web import error, http
from twisted.web.resource import IResource, Resource
from twisted.web.server import Request

from crawler.node.config import NodeConfig
from crawler.node.projects import canonical
from gateway.contract.outbox import LOG, AttemptId, HostileFileError, attempt_dir, open_file

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_CORS = (b"Access-Control-Allow-Origin", b"Access-Control-Allow-Methods", b"Access-Control-Allow-Headers")


class Root(website.Root):
    """Scrapyd's pages, unchanged. Scrapyd checks the password before. Host and Origin are checked here, because all
    requests pass through here.
    """

    def __init__(self, config: NodeConfig, app: Any) -> None:
        super().__init__(config, app)
        bind_address = os.environ.get("SCRAPYD_BIND_ADDRESS") or config.get("bind_address", "127.0.0.1")
        self._origins = origin_guard(bind_address, config.settings.node_base_url)
        self.putChild(b"logs", Logs(self.logs_dir, config.settings.outbox))

    def putChild(self, path: bytes, child: IResource) -> None:  # noqa: N802 - Twisted's name
        super().putChild(path, WithoutCors(child) if isinstance(child, WsResource) else child)

    def getChildWithDefault(self, path: bytes, request: Request) -> Any:  # noqa: N802 - Twisted's name
        if refusal := self._origins.refusal(request.getHeader("host"), request.getHeader("origin")):
            return RefusedResource(refusal)
        while not path and request.postpath:  # scrapyd-client puts two slashes after a URL that ends with one
            path = request.postpath.pop(0)
            request.prepath = [*(request.prepath or []), path]
        if names := request.args.get(b"project"):
            known = self.poller.queues
            request.args[b"project"] = [canonical(name.decode("utf-8", "replace"), known).encode() for name in names]
        return super().getChildWithDefault(path, request)


class WithoutCors(Resource):
    """A service without Scrapyd's CORS headers, which let every page on the web read it."""

    def __init__(self, service: WsResource) -> None:
        super().__init__()
        self._service = service

    def render(self, request: Request) -> Any:
        content = self._service.render(request)
        for header in _CORS:
            request.responseHeaders.removeHeader(header)
        return content


class RefusedResource(Resource):
    isLeaf = True  # noqa: N815 - Twisted's name

    def __init__(self, why: str) -> None:
        super().__init__()
        self._why = why

    def render(self, request: Request) -> bytes:
        request.setResponseCode(http.FORBIDDEN)
        request.setHeader(b"Content-Type", b"text/plain; charset=utf-8")
        return f"403: {self._why}\n".encode()


class Logs(website.File):
    """The folder of logs. It skips logs that are gone: a log can vanish at any time, and Scrapyd fails on dead links.

    The log of an attempt is a link to a file in its folder. Any other link was put there by a spider.
    """

    _size = 0

    def __init__(self, path: str, outbox: Path) -> None:
        super().__init__(path, "text/plain")
        self._outbox = outbox

    def createSimilarFile(self, path: str) -> Logs:  # noqa: N802 - Twisted's name
        return Logs(path, self._outbox)

    def openForReading(self) -> IO[bytes]:  # noqa: N802 - Twisted's name
        path = Path(os.fsdecode(self.path))
        try:
            log = os.fdopen(open_file(self._attempt_log(path) or path), "rb")
        except HostileFileError as error:
            raise PermissionError(errno.EACCES, str(error)) from error
        self._size = os.fstat(log.fileno()).st_size
        return log

    def getFileSize(self) -> int:  # noqa: N802 - Twisted's name
        return self._size

    def listNames(self) -> list[str]:  # noqa: N802 - Twisted's name
        return [name for name in super().listNames() if self.child(name).exists()]

    def _attempt_log(self, link: Path) -> Path | None:
        """The log of an attempt, if `link` is a link that the launcher made; `None` for anything else."""
        attempt = AttemptId.parse(link.stem)
        log = attempt_dir(self._outbox, attempt) / LOG if attempt else None
        return log if log and link.is_symlink() and link.readlink() == log else None


# --- requests with bodies, which can be large: an egg is never as a whole in memory

#: Maximum number of bytes of an upload (the egg and the form around it), of any other request, and of all fields of a
#: form.
MOST_UPLOAD, MOST_BODY, _MOST_FIELDS = 256 << 20, 16 << 20, 64 << 10
_MOST_IN_MEMORY = 100_000
_PIECE = 1 << 18
_TAKES_EGGS = b"/addversion.json"
#: Path that is answered without a password and before all checks: health checks have no password.
LIVE = b"/live"


class NodeRequest(Request):
    """A request that keeps a form with an egg in the file, in `folder`, into which it was received (see `Form`).
    Twisted would read the form into memory and copy it several times.
    """

    #: The Content-Type of a form with an egg.
    form_type: bytes | None = None
    _received = 0
    _most = MOST_UPLOAD

    def __init__(self, *channel: Any, folder: Path) -> None:
        super().__init__(*channel)
        self._folder = folder

    def gotLength(self, length: int | None) -> None:  # noqa: N802 - Twisted's name
        """Receive large bodies into `folder`. Twisted would use `/tmp`, which can be in memory, or nearly full."""
        if length is not None and length < _MOST_IN_MEMORY:
            self.content = BytesIO()
        else:
            self.content = TemporaryFile(dir=self._folder)  # noqa: SIM115 - Twisted closes it

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._received += len(data)
        if self._received <= self._most:
            super().handleContentChunk(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:  # noqa: N802 - Twisted's name
        headers = self.requestHeaders
        kind = headers.getRawHeaders(b"content-type", [b""])[0]
        if path.partition(b"?")[0].endswith(_TAKES_EGGS) and kind.lower().startswith(b"multipart/form-data"):
            self.form_type = kind
        else:
            self._most = MOST_BODY
        if self.form_type or self._received > self._most:
            headers.removeHeader(b"content-type")  # so that it is not parsed
        super().requestReceived(command, path, version)

    def process(self) -> None:
        if self._received > self._most:
            self._say(http.REQUEST_ENTITY_TOO_LARGE, f"413: more than {self._most >> 20} MiB\n")
        elif self.path == LIVE:
            self._say(http.OK, "ok\n")
        else:
            super().process()

    def _say(self, code: int, text: str) -> None:
        self.setResponseCode(code)
        self.setHeader(b"Content-Type", b"text/plain; charset=utf-8")
        self.write(text.encode())
        self.finish()


class Form:
    """A form with one file, read piece by piece."""

    def __init__(self) -> None:
        self._fields: dict[str, bytearray] = {}
        self._room = _MOST_FIELDS
        self._header, self._value = bytearray(), bytearray()
        self._part: bytearray | None = None

    def field(self, name: str, default: str | None = None) -> str:
        """The field's value. Raises Scrapyd's error if the field is missing and has no default."""
        if name not in self._fields:
            if default is not None:
                return default
            raise error.Error(code=http.OK, message=f"'{name}' parameter is required".encode())
        return self._fields[name].decode("utf-8", "replace")

    def read(self, request: NodeRequest, file: IO[bytes]) -> None:
        """Write the form's file to `file`. Raises Scrapyd's error if the request has no such form, and `OSError`."""
        _, options = parse_options_header(request.form_type)
        self._file = file
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._part_begin,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_part_data": self._part_data,
        }
        body: Any = request.content
        try:
            parser = MultipartParser(options[b"boundary"], callbacks)
            while piece := body.read(_PIECE):
                parser.write(piece)
            parser.finalize()
        except (FormParserError, KeyError) as fault:
            message = "send project, version and egg as multipart/form-data, as scrapyd-deploy does"
            raise error.Error(code=http.OK, message=message.encode()) from fault

    def _part_begin(self) -> None:
        self._part = None

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._value))
            name = options.get(b"name", b"").decode("utf-8", "replace")
            self._part = None if name == "egg" else self._fields.setdefault(name, bytearray())
        self._header, self._value = bytearray(), bytearray()

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._part is None:
            self._file.write(memoryview(data)[start:end])
            return
        self._room -= end - start
        if self._room < 0:
            raise FormParserError("its fields are too long")
        self._part += data[start:end]


# --- besides the password, a request must be addressed to this node, and not come from a page of another origin
#
# A browser sends a saved password on behalf of any page that asks for it, and an attacker can make a name resolve to
# 127.0.0.1 after the page was loaded (DNS rebinding). So the Host must be a name of this node, and if a page sent the
# request, it must be a page of this node.

_DEFAULT_PORTS = {"http": 80, "https": 443}


class OriginGuard(NamedTuple):
    #: Host names and addresses, in lower case, that the node answers to besides loopback.
    hosts: frozenset[str]
    #: Origin (`scheme://host:port`) of `NODE_URL`: a proxy may have changed the Host header.
    public_origin: str

    def refusal(self, host_header: str | None, origin_header: str | None) -> str | None:
        """Why the request is refused; `None` if it is not."""
        host = _split(f"//{host_header}") if host_header else None
        if host is None or not self._is_ours(host.hostname or ""):
            return "the Host header names another host; set NODE_URL if this node has that name"
        if origin_header is None:
            return None
        origin = _split(origin_header)
        if origin is not None and (_same(origin, host) or _text(origin) == self.public_origin):
            return None
        return "the request comes from a page of another origin"

    def _is_ours(self, host: str) -> bool:
        return host in self.hosts or host == "localhost" or _is_loopback(host)


def origin_guard(bind_address: str, node_url: str) -> OriginGuard:
    """The guard of a node that listens on `bind_address` and is known to others as `node_url`."""
    url = urlsplit(node_url)
    names = {bind_address.lower().strip("[]"), (url.hostname or "").lower()}
    return OriginGuard(frozenset(name for name in names if name and not _is_wildcard(name)), _text(url))


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port, parts.hostname
    except ValueError:
        return None
    return parts


def _same(origin: SplitResult, host: SplitResult) -> bool:
    port = _DEFAULT_PORTS.get(origin.scheme)
    return port is not None and origin.hostname == host.hostname and (origin.port or port) == (host.port or port)


def _text(url: SplitResult) -> str:
    return f"{url.scheme}://{url.hostname}:{url.port or _DEFAULT_PORTS.get(url.scheme)}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_wildcard(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
