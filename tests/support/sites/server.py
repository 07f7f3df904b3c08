"""A web site for tests: threaded, on loopback, with a log of visits. It can misbehave in many ways.

    with Site(pages={"/": '<a href="/a">a</a>', "/a": "hello"}) as site:
        crawl(site.url)
        assert site.hits("/a") == 1

Besides the `pages` it is given (HTML text, or a `Reply`), it always serves:

=================  ==================================================================================
`/status/<n>`      a page with that status
`/redirect/<n>`    n redirects, then a page            `/redirect-to?<url>`  302 to anywhere
`/loop`            redirects to `/loop/b` and back
`/slow/<s>`        a page after s seconds (cut short when the site closes)
`/large/<n>`       an HTML page of n bytes, announced   `/large-chunked/<n>`  the same, unannounced
`/endless/<n>`     a page with links to `/endless/<n+1>` and four others, for ever
`/tree/<n>`        a page of a site of n linked pages: `/tree/<n>/<i>` has ten children
`/latin-1`         a page in ISO-8859-1                `/flaky/<n>/…`        n times 503, then 200
`/broken-off`      promises more than it sends
=================  ==================================================================================

Any other path is a 404, and so is `/robots.txt` unless it is given. Paths under `/private/` are ordinary pages.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self

CHUNK = 64 << 10


class Visit(NamedTuple):
    method: str
    path: str
    status: int
    #: When it was requested (monotonic time), and with which headers.
    at: float = 0
    headers: Mapping[str, str] = {}


class Reply(NamedTuple):
    """The answer for a page."""

    body: bytes | str = b""
    status: int = 200
    content_type: str | None = "text/html; charset=utf-8"
    headers: Mapping[str, str] = {}
    #: Seconds before the answer is sent.
    delay: float = 0

    @property
    def data(self) -> bytes:
        return self.body.encode() if isinstance(self.body, str) else self.body


def html(body: str, title: str = "") -> str:
    head = f"<title>{title}</title>" if title else ""
    return f"<!doctype html><html lang=en><head>{head}</head><body>{body}</body></html>"


def links(*paths: str) -> str:
    return html("".join(f'<a href="{path}">{path}</a> ' for path in paths))


class Site:
    """The running site. `delay` (seconds) applies to every page. After `hold()` nothing is answered until
    `release()`.
    """

    def __init__(
        self,
        pages: Mapping[str, str | Reply] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        delay: float = 0,
        robots: str | None = None,
    ) -> None:
        self.pages: dict[str, str | Reply] = dict(pages or {})
        if robots is not None:
            self.pages["/robots.txt"] = Reply(robots, content_type="text/plain")
        self.host = host
        self.delay = delay
        #: All answers, in the order in which they began.
        self.access_log: list[Visit] = []
        self.closing = threading.Event()
        self._may_answer = threading.Event()
        self._may_answer.set()
        self._tries: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._server = _Server((host, port), _Handler)
        self._server.site = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def netloc(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The site's URL without a slash at its end: `site.url + "/a"`."""
        return f"http://{self.netloc}"

    def hits(self, path: str) -> int:
        """How often `path` (with its query) was requested."""
        return sum(visit.path == path for visit in list(self.access_log))

    def paths(self) -> list[str]:
        """All requested paths except robots.txt, in order, with repetitions."""
        return [visit.path for visit in list(self.access_log) if visit.path != "/robots.txt"]

    def hold(self) -> None:
        self._may_answer.clear()

    def release(self) -> None:
        self._may_answer.set()

    def start(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        self.closing.set()
        self._may_answer.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_until_allowed(self) -> None:
        self._may_answer.wait()
        if self.delay:
            self.closing.wait(self.delay)

    def log(self, visit: Visit) -> None:
        with self._lock:
            self.access_log.append(visit)

    def nth_try(self, path: str) -> int:
        with self._lock:
            self._tries[path] += 1
            return self._tries[path]

    def reply(self, path: str) -> Reply:
        if path in self.pages:
            page = self.pages[path]
            return page if isinstance(page, Reply) else Reply(page)
        name, _, rest = path[1:].partition("/")
        generate = GENERATED.get(name.partition("?")[0])
        return generate(self, path, rest) if generate else Reply("nothing here", 404)


def _status(site: Site, path: str, rest: str) -> Reply:
    return Reply(f"status {rest}", int(rest))


def _redirect(site: Site, path: str, rest: str) -> Reply:
    if not int(rest):
        return Reply(html("the end of the chain", "Chain"))
    return Reply(status=301, headers={"Location": f"/redirect/{int(rest) - 1}"})


def _redirect_to(site: Site, path: str, rest: str) -> Reply:
    return Reply(status=302, headers={"Location": path.partition("?")[2]})


def _loop(site: Site, path: str, rest: str) -> Reply:
    return Reply(status=302, headers={"Location": "/loop" if rest else "/loop/b"})


def _slow(site: Site, path: str, rest: str) -> Reply:
    site.closing.wait(float(rest))
    return Reply(html("at last", "Slow"))


def _endless(site: Site, path: str, rest: str) -> Reply:
    number = int(rest or 0)
    return Reply(links(*(f"/endless/{number * 5 + i}" for i in range(1, 6))))


def _tree(site: Site, path: str, rest: str) -> Reply:
    size, _, index = rest.partition("/")
    number = int(index or 0)
    children = range(number * 10 + 1, min(number * 10 + 11, int(size)))
    text = "<p>" + "Lorem ipsum dolor sit amet. " * 40 + "</p>"
    anchors = "".join(f'<a href="/tree/{size}/{child}">page {child}</a> ' for child in children)
    return Reply(html(f"<h1>Page {number}</h1>{text}{anchors}<a href='/tree/{size}/0'>up</a>", f"Page {number}"))


def _latin_1(site: Site, path: str, rest: str) -> Reply:
    page = html("<h1>Çà et là</h1>", "Déjà vu")
    return Reply(page.encode("latin-1"), content_type="text/html; charset=iso-8859-1")


def _flaky(site: Site, path: str, rest: str) -> Reply:
    failures = int(rest.partition("/")[0])
    return Reply("not yet", 503) if site.nth_try(path) <= failures else Reply(html("now it works", "Flaky"))


GENERATED: dict[str, Callable[[Site, str, str], Reply]] = {
    "status": _status,
    "redirect": _redirect,
    "redirect-to": _redirect_to,
    "loop": _loop,
    "slow": _slow,
    "endless": _endless,
    "tree": _tree,
    "latin-1": _latin_1,
    "flaky": _flaky,
}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    # a crawl that opens many connections at once must not find the backlog full
    request_queue_size = 512
    site: Site

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: a client has gone away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def do_GET(self) -> None:
        site, at = self.server.site, time.monotonic()
        name, _, size = self.path[1:].partition("/")
        if name in {"large", "large-chunked", "broken-off"}:
            site.log(Visit(self.command, self.path, 200, at, dict(self.headers)))
            self._send_large(int(size or 1000), announced=name != "large-chunked", torn=name == "broken-off")
            return
        site.wait_until_allowed()
        reply = site.reply(self.path)
        site.closing.wait(reply.delay)
        site.log(Visit(self.command, self.path, reply.status, at, dict(self.headers)))
        self._send(reply)

    do_HEAD = do_GET  # noqa: N815 - the base class's name

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        if reply.content_type:
            self.send_header("Content-Type", reply.content_type)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.data)

    def _send_large(self, size: int, *, announced: bool, torn: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        if announced:
            self.send_header("Content-Length", str(size))
        self.send_header("Connection", "close")
        self.end_headers()
        left = size // 2 if torn else size
        while left > 0 and not self.server.site.closing.is_set():
            self.wfile.write(b"x" * min(CHUNK, left))
            left -= CHUNK
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Print nothing: `access_log` has the requests."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a test site until interrupted.")
    parser.add_argument("--port", type=int, default=0)
    with Site(port=parser.parse_args().port) as site:
        print(site.url, flush=True)  # noqa: T201 - the caller waits for this line
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
