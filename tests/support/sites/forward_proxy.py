"""A forward proxy for plain HTTP that records requests, and refuses those without the right password."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

USER, PASSWORD = "crawl", "s3cret-of-the-proxy"


class ForwardProxy(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        #: Every URL that was requested with the password.
        self.passed: list[str] = []

    @property
    def url(self) -> str:
        return f"http://{USER}:{PASSWORD}@127.0.0.1:{self.server_port}"


@contextmanager
def forward_proxy() -> Iterator[ForwardProxy]:
    proxy = ForwardProxy()
    thread = threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: ForwardProxy

    def do_GET(self) -> None:
        expected = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Proxy-Authorization") != f"Basic {expected}":
            self.send_error(407)
            return
        self.server.passed.append(self.path)
        kept = {name: value for name, value in self.headers.items() if not name.lower().startswith("proxy-")}
        parts = urlsplit(self.path)
        with closing(HTTPConnection(parts.netloc, timeout=60)) as site:
            site.request("GET", parts._replace(scheme="", netloc="").geturl() or "/", headers=kept)
            answer = site.getresponse()
            body = answer.read()
        self.send_response(answer.status)
        for name in ("Content-Type", "Location"):
            if value := answer.headers[name]:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Print nothing: `passed` has the requests."""
