"""A real HTML manual, crawled by `seo` and walked by an independent few lines of lxml, must come out the same."""

from __future__ import annotations

import functools
import itertools
import threading
import urllib.request
from collections import deque
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urldefrag, urljoin, urlsplit

import lxml.html
import pytest
from event_source import Event, log_text, read_events
from forms import full_or_short
from machine import missing
from stack import Stack, wait_until

DEPTH = full_or_short(3, 1)
MANUALS = [
    Path("/usr/share/doc") / name for name in ("sqlite3", "sqlite3-doc", "python3/html", "postgresql-doc-15/html")
]

pytestmark = [pytest.mark.stack]


class Manual:
    """A site whose pages wait, after the first few, until somebody has read an item of them."""

    FIRST_FEW = 10

    def __init__(self) -> None:
        self.url, self.served, self.is_read = "", itertools.count(), threading.Event()

    def waits(self) -> None:
        if next(self.served) > self.FIRST_FEW:
            self.is_read.wait(60)


@pytest.fixture(scope="module")
def manual() -> Iterator[Manual]:
    root = next((folder for folder in MANUALS if (folder / "index.html").exists()), None)
    if root is None:
        missing("no HTML manual is installed: apt install sqlite3-doc")

    manual = Manual()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            manual.waits()
            super().do_GET()

        def log_message(self, *_: object) -> None:
            """Nobody reads them."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    manual.url = f"http://127.0.0.1:{server.server_address[1]}/index.html"
    yield manual
    server.shutdown()
    server.server_close()
    thread.join()


def walk(start: str, depth: int) -> set[str]:
    """Breadth first over `<a href>`: the HTML pages of the same site within `depth` links of `start`."""
    seen, pages = {start}, set[str]()
    queue = deque([(start, 0)])
    while queue:
        url, level = queue.popleft()
        try:
            with urllib.request.urlopen(url) as response:
                if response.headers.get_content_type() != "text/html":
                    continue
                document = lxml.html.fromstring(response.read() or b"<html></html>", base_url=url)
        except HTTPError:
            continue
        pages.add(url)
        if level == depth:
            continue
        for href in document.xpath("//a/@href"):
            try:
                target = urldefrag(urljoin(url, href.strip())).url
                same = urlsplit(target).scheme == "http" and urlsplit(target).netloc == urlsplit(start).netloc
            except ValueError:
                continue
            if same and target not in seen:
                seen.add(target)
                queue.append((target, level + 1))
    return pages


def test_a_manual_is_crawled_completely_streamed_and_logged(stack: Stack, manual: Manual) -> None:
    job_id = stack.crawl(manual.url, depth=DEPTH, max_pages=100_000, user_id="reader")
    events: list[Event] = []
    with stack.http.stream("GET", f"{stack.url}/jobs/{job_id}/logs") as response:
        wait_until(lambda: stack.items(job_id), what="an item that is read while the crawl runs")
        assert not stack.job(job_id)["finished_at"]
        manual.is_read.set()
        events.extend(read_events(response))
    assert events[-1].data["status"] in {"finished", "partial"}, events[-1]
    crawled = [item["url"] for item in stack.items(job_id) if item["type"] == "page"]
    assert len(crawled) == len(set(crawled))
    assert set(crawled) == walk(manual.url, DEPTH)
    assert log_text(events).encode() == stack.log(job_id) == stack.log_on_node(job_id)
