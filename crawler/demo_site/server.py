"""The demo site over HTTP."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from crawler.demo_site.pages import REDIRECTS, ROBOTS, page, position_page


class DemoServer(ThreadingHTTPServer):
    """On loopback only; `port` 0 takes a free one."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path in REDIRECTS:
            status, target = REDIRECTS[path]
            self._send(status, "", {"Location": target})
        elif path == "/robots.txt":
            self._send(200, ROBOTS, content_type="text/plain")
        elif path == "/tide-tables":
            self._send(500, "<h1>The tide table machine is out of order</h1>")
        else:
            text = page(path) or position_page(path, query)
            self._send(404 if text is None else 200, text or "<h1>Lost at sea</h1>")

    do_HEAD = do_GET  # noqa: N815 - the base class's name

    def _send(
        self, status: int, text: str, headers: dict[str, str] | None = None, content_type: str = "text/html"
    ) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """The crawl's own log is the one to watch."""
