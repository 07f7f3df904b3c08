"""A node whose Scrapyd is hostile: its pages try to act as pages of the gateway."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOG = bytes(range(256)) * 16
PASSWORD = "not-a-secret"
_AUTH = "Basic " + base64.b64encode(f"discoverybot:{PASSWORD}".encode()).decode()
_PAGE = """<!doctype html><title>Scrapyd</title>
<script>document.title = 'ran'; fetch('/session', {{method: 'DELETE'}});</script>
<p onclick="document.title = 'ran'">A node's page</p>
<a href="{prefix}/jobs">Jobs</a>
<form method="post" action="{prefix}/cancel.json">
<input type="hidden" name="project" value="theirs"><input type="hidden" name="job" value="one">
<input type="submit" value="Cancel"></form>
<form method="post" action="/crawl"><input type="submit" value="Crawl"></form>
"""


class StandInNode:
    def __init__(self, url: str) -> None:
        self.url = url
        #: Method, path, headers and body of each request.
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []

    @property
    def cancelled(self) -> list[bytes]:
        return [body for method, path, _, body in self.asked if (method, path) == ("POST", "/cancel.json")]


class _Handler(BaseHTTPRequestHandler):
    node: StandInNode

    def _note(self) -> bool:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.node.asked.append((self.command, self.path, dict(self.headers), body))
        if is_known := self.headers.get("Authorization") == _AUTH:
            return is_known
        self._answer(401, b"who are you?")
        return False

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"Content-Length": str(len(body)), "Set-Cookie": "a=b", **given}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if not self._note():
            return
        page = _PAGE.format(prefix=self.headers.get("X-Forwarded-Prefix", "")).encode()
        match self.path:
            case "/" | "/jobs":
                self._answer(200, page, Content_Type="text/html")
            case "/logs/a.log" if self.headers.get("Range"):
                self._answer(206, LOG[:4], Content_Type="text/plain", Content_Range=f"bytes 0-3/{len(LOG)}")
            case "/logs/a.log" | "/items/a%20%3F.jl":
                self._answer(200, LOG, Content_Type="text/plain")
            case "/items/a.js":
                self._answer(200, b"alert(1)", Content_Type="text/plain, Text/JavaScript; charset=utf-8")
            case "/logs":
                self._answer(302, b"", Location=f"{self.node.url}/logs/")
            case "/logs/elsewhere":
                self._answer(302, b"", Location="http://evil.example/")
            case "/logs/broken":
                self._answer(500, b"Traceback")
            case "/logs/huge":
                self._answer(200, b"", Content_Length=str(1 << 40))
            case _:
                self._answer(404, b"no")

    def do_POST(self) -> None:
        if not self._note():
            return
        if b"project=nowhere" in self.node.asked[-1][3]:
            self._answer(200, b'{"status": "error", "reason": "project_missing", "message": "nobody knows nowhere"}')
        else:
            self._answer(200, b'{"status": "ok", "prevstate": "running"}')

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base's parameter
        del format, args


@contextmanager
def stand_in_node() -> Iterator[StandInNode]:
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.node = node = StandInNode(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield node
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)
