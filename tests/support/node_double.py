"""A stand-in for a crawl node's HTTP service, which answers as a test wants: takes jobs, refuses, or
sends no answer.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs


class NodeDouble:
    def __init__(self) -> None:
        #: `(path, form)` of every request.
        self.requests: list[tuple[str, dict[str, str]]] = []
        #: Paths of requests without a job.
        self.probes: list[str] = []
        #: `ok`, `refuse`, `halves` (refuses in text that is not UTF-8), `full` (refuses for a reason of the node),
        #: `lost` (answers questions, but closes the connection after a post), `vanish` (closes without any answer),
        #: `hang` (never answers), `drip` (a byte per second), `endless` (an answer without end), `packed`
        #: (compressed, perhaps gigabytes), `long` (megabytes of JSON), `values` (millions of values), `moved`
        #: (redirects), `broken` (500, not JSON), `garbage` (the same with 200) or `shut` (401).
        self.mode = "ok"
        #: Paths whose requests are never answered.
        self.silent: set[str] = set()
        #: The attempts that it has taken, if it knows `withdraw.json`; and the attempts that it will never take.
        self.taken: set[str] | None = None
        #: Whether it takes attempts although it does not answer.
        self.takes = False
        self.barred: set[str] = set()
        self.over = threading.Event()
        self.url = ""
        #: Called between a request and its answer.
        self.meanwhile: Callable[[], object] | None = None

    def note(self, path: str, form: dict[str, str]) -> bytes:
        """The answer to a request."""
        if self.taken is None:
            return WELL
        if path == "/schedule.json" and self.mode in ARRIVES and (self.takes or path not in self.silent):
            self.taken |= {form["jobid"]} - self.barred
        if path != "/withdraw.json":
            return WELL
        is_taken = form["job"] in self.taken
        self.barred |= set() if is_taken else {form["job"]}
        return b'{"status": "ok", "taken": %s}' % str(is_taken).lower().encode()

    @property
    def posted(self) -> list[str]:
        return [form["jobid"] for path, form in self.requests if path == "/schedule.json"]

    @property
    def cancelled(self) -> list[str]:
        return [form["job"] for path, form in self.requests if path == "/cancel.json"]


#: Modes in which the node has the attempt after a post.
ARRIVES = {"ok", "lost", "hang"}
WELL = b'{"status": "ok"}'
_ANSWERS = {
    "refuse": b'{"status": "error", "fault": "job", "message": "no such spider", "reason": "spider_missing"}',
    "halves": b'{"status": "error", "fault": "job", "message": "no spider \\ud800", "reason": "spider_missing"}',
    "full": b'{"status": "error", "fault": "node", "message": "OSError: [Errno 24] Too many open files"}',
    "broken": b"oops",
    "garbage": b"\xff<html>",
    "packed": gzip.compress(b'{"status": "ok"}'),
    "values": b'{"status": "ok", "infos": [%s0]}' % (b"[]," * (1 << 20)),
    "long": b'{"status": "ok"%s}' % (b" " * (2 << 20)),
}


def _answer(request: BaseHTTPRequestHandler, double: NodeDouble, mode: str, answer: bytes) -> None:
    if mode in {"vanish", "lost", "hang"} or request.path.partition("?")[0] in double.silent:
        request.close_connection = True
        if mode not in {"vanish", "lost"}:
            double.over.wait(300)
        return
    content = _ANSWERS.get(mode, answer)
    request.send_response({"broken": 500, "shut": 401, "moved": 302}.get(mode, 200))
    request.send_header("Location", double.url)
    request.send_header("Content-Length", str(1 << 33 if mode in {"drip", "endless"} else len(content)))
    if mode == "packed":
        request.send_header("Content-Encoding", "gzip")
    request.end_headers()
    request.wfile.write(content)
    while mode in {"drip", "endless"} and not double.over.wait(mode == "drip"):
        request.wfile.write(b" " * (1 if mode == "drip" else 1 << 20))


@contextmanager
def node_double() -> Iterator[NodeDouble]:
    double = NodeDouble()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            double.probes.append(self.path)
            # refusals are about jobs; probes are answered
            self.answer("ok" if double.mode in {"refuse", "halves", "full", "lost"} else double.mode)

        said = WELL

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode(errors="replace")
            double.requests.append((self.path, {name: values[0] for name, values in parse_qs(body).items()}))
            happening, double.meanwhile = double.meanwhile, None
            if happening:
                happening()
            self.said = double.note(*double.requests[-1])
            # it refuses crawls, but answers the question whether it has taken one
            is_asked = self.path == "/withdraw.json" and double.mode == "refuse"
            self.answer("ok" if is_asked else double.mode)

        def answer(self, mode: str) -> None:
            _answer(self, double, mode, self.said)

        def handle_one_request(self) -> None:
            # the client may be gone
            with suppress(OSError):
                super().handle_one_request()

        def log_message(self, *_: object) -> None:
            """Print nothing: the requests are kept."""

    with _serving(Handler) as double.url:
        try:
            yield double
        finally:
            double.over.set()


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL of a server with this handler."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
