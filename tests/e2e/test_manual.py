"""A real HTML manual, crawled by `seo` and walked by an independent few lines of lxml, must come out the same."""

from __future__ import annotations

import functools
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
from stack import Stack

DEPTH = full_or_short(3, 1)
MANUALS = [
    Path("/usr/share/doc") / name for name in ("sqlite3", "sqlite3-doc", "python3/html", "postgresql-doc-15/html")
]

pytestmark = [pytest.mark.stack]


@pytest.fixture(scope="module")
def manual() -> Iterator[str]:
    root = next((folder for folder in MANUALS if (folder / "index.html").exists()), None)
    if root is None:
        missing("no HTML manual is installed: apt install sqlite3-doc")

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nobody reads them."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/index.html"
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


def test_a_manual_is_crawled_completely_streamed_and_logged(stack: Stack, manual: str) -> None:
    job_id = stack.crawl(manual, depth=DEPTH, max_pages=100_000, user_id="reader")
    events: list[Event] = []
    counts: list[int] = []
    with stack.http.stream("GET", f"{stack.url}/jobs/{job_id}/logs") as response:
        for event in read_events(response):
            events.append(event)
            if event.event == "progress":
                page = stack.http.get(f"{stack.url}/jobs/{job_id}/items", params={"limit": 200}).json()
                counts.append(len(page["items"]))
    assert events[-1].data["status"] in {"finished", "partial"}, events[-1]
    crawled = [item["url"] for item in stack.items(job_id) if item["type"] == "page"]
    assert len(crawled) == len(set(crawled))
    assert set(crawled) == walk(manual, DEPTH)
    assert any(count > 0 for count in counts[:-1]), "no item could be read while the crawl ran"
    assert log_text(events).encode() == stack.log(job_id) == stack.log_on_node(job_id)
