"""What one crawl may take, whatever its spider, its project or a site would like."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import brotli
import pytest
import zstandard
from sites.server import Reply, Site, html

from .conftest import Crawl, Run, Start

SHOP = Path(__file__).parent / "shop"
PAGE_BYTES = 1 << 20
ENVIRON = {"CRAWL_MAX_PAGE_BYTES": str(PAGE_BYTES), "CRAWL_MAX_PAGE_SECONDS": "1.5", "CRAWL_STOP_GRACE": "1"}
#: For pages that are to arrive.
PATIENT = {**ENVIRON, "CRAWL_MAX_PAGE_SECONDS": "60"}
BOMB = b" " * (20 * PAGE_BYTES)


class Dripping:
    """A server that answers with what `send` makes of a connection, for as long as there is somebody to answer."""

    def __init__(self, send: Callable[[socket.socket, threading.Event], None]) -> None:
        self._send = send
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            connection.recv(4096)
            self._send(connection, self._closing)
        except OSError:
            return
        finally:
            connection.close()

    def close(self) -> None:
        self._closing.set()
        self._listener.close()


def never(_: socket.socket, closing: threading.Event) -> None:
    closing.wait()


def a_byte_at_a_time(connection: socket.socket, closing: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100000\r\n\r\n")
    while not closing.wait(0.05):
        connection.sendall(b"x")


def endless_headers(connection: socket.socket, closing: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not closing.is_set():
        connection.sendall(b"X-Padding: " + b"x" * 4000 + b"\r\n")


def endless_interim_responses(connection: socket.socket, closing: threading.Event) -> None:
    while not closing.is_set():
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 100)


@pytest.fixture
def dripping() -> Iterator[list[str]]:
    servers = [Dripping(send) for send in (never, a_byte_at_a_time, endless_headers, endless_interim_responses)]
    yield [server.url for server in servers]
    for server in servers:
        server.close()


def outcomes(crawl: Crawl) -> dict[str, dict[str, Any]]:
    return {item["asked"]: item for item in crawl.items}


def test_no_spider_waits_longer_than_it_may(run: Run, dripping: list[str]) -> None:
    # it comes to its end, though none of them does
    crawl = run("greedy", *dripping, cwd=SHOP, environ=ENVIRON)
    assert len(crawl.items) == 2 * len(dripping)
    assert all("error" in item for item in crawl.items)


def bombs() -> dict[str, Reply]:
    deflate = zlib.compressobj(wbits=-15)
    once = {
        "gzip": gzip.compress(BOMB),
        "deflate": zlib.compress(BOMB),
        "raw-deflate": deflate.compress(BOMB) + deflate.flush(),
        "br": brotli.compress(BOMB),
        "zstd": zstandard.ZstdCompressor().compress(BOMB),
        "gzip, gzip": gzip.compress(gzip.compress(BOMB)),
        "br, gzip": gzip.compress(brotli.compress(BOMB)),
        "gzip, gzip, gzip, gzip": gzip.compress(gzip.compress(gzip.compress(gzip.compress(b"small")))),
    }
    return {
        f"/{name.replace(', ', '-')}": Reply(body, headers={"Content-Encoding": name.removeprefix("raw-")})
        for name, body in once.items()
    }


def test_no_page_becomes_larger_than_it_may_be(run: Run, site: Site) -> None:
    packed = bombs()
    site.pages.update(packed)
    site.pages["/small"] = Reply(gzip.compress(b"x" * 1000), headers={"Content-Encoding": "gzip"})
    large = [f"/large/{2 * PAGE_BYTES}", f"/large-chunked/{2 * PAGE_BYTES}"]
    crawl = run("greedy", *(site.url + path for path in (*large, *packed, "/small")), cwd=SHOP, environ=PATIENT)
    told = outcomes(crawl)
    for path in (*large, *packed):
        for way in ("", " with meta"):
            assert "error" in told[site.url + path + way], path
    assert told[f"{site.url}/small"]["bytes"] == 1000


@pytest.mark.parametrize(("own", "held_to"), [(None, 1), (2, 2), (9, 3)])
def test_a_project_may_raise_the_size_of_a_page_up_to_the_nodes_limit(
    run: Run, site: Site, own: int | None, held_to: int
) -> None:
    environ = {"CRAWL_PAGE_BYTES": str(PAGE_BYTES), "CRAWL_MAX_PAGE_BYTES": str(3 * PAGE_BYTES)}
    settings = {"DOWNLOAD_MAXSIZE": own * PAGE_BYTES} if own else {}
    fits, beyond = (f"{site.url}/large/{held_to * PAGE_BYTES + more}" for more in (-1000, 1000))
    crawl = run("large", fits, beyond, cwd=SHOP, environ=environ, settings=settings)
    told = outcomes(crawl)
    assert told[fits]["bytes"] == held_to * PAGE_BYTES - 1000
    (error,) = crawl.report["errors"]
    assert f"larger than its limit of {held_to * PAGE_BYTES} bytes (DOWNLOAD_MAXSIZE" in error["reason"]


def test_a_page_whose_tags_have_no_end_of_attributes_is_not_parsed(run: Run, site: Site) -> None:
    many = "".join(f" a{number}='>'" for number in range(40_000))
    pages = {
        "/plain": html(f"<p{many}>x</p>"),
        "/packed": Reply(gzip.compress(f"<p{many}>".encode()), headers={"Content-Encoding": "gzip"}),
        "/wide": Reply(f"<p{many}>".encode("utf-16"), content_type="text/html; charset=utf-16"),
        "/text": Reply(f"<p{many}>", content_type="text/plain"),
    }
    sound = {
        "/script": html(f"<script>'<p{many}>'</script>"),
        "/long": html("<p a='b' c>x</p>" * 10_000),
        "/broken": html("<p" + " x='" * 20_000),
    }
    site.pages.update({**pages, **sound})
    crawl = run("greedy", *(site.url + path for path in (*pages, *sound)), cwd=SHOP)
    told = outcomes(crawl)
    for path in pages:
        assert "more than 512 attributes" in told[site.url + path]["error"], path
    for path in sound:
        assert "error" not in told[site.url + path], path
    ours = run("seo", *(site.url + path for path in ("/plain", "/packed", "/wide", "/long")))
    assert (ours.progress["errors_count"], ours.progress["completed_pages"]) == (3, 1)
    assert ours.log.count("more than 512 attributes") == 3


def test_redirects_come_to_an_end(run: Run, site: Site) -> None:
    crawl = run("greedy", f"{site.url}/redirect/1000", cwd=SHOP, environ=PATIENT)
    assert all("max redirections reached" in item["error"] for item in crawl.items)
    assert len(site.paths()) < 60


@pytest.mark.parametrize("manner", ["give", "wait"])
def test_there_are_as_many_items_as_there_may_be_and_an_end(run: Run, site: Site, manner: str) -> None:
    site.pages["/"] = html("a page")
    began = time.monotonic()
    urls = [f"{site.url}/", f"{site.url}/slow/60", f"{site.url}/?waiting"]
    site.pages["/?waiting"] = html("another")
    crawl = run("generous", *urls, cwd=SHOP, max_items=7, params={"manner": manner}, environ=ENVIRON)
    assert [item["number"] for item in crawl.items if "number" in item][:3] == [0, 1, 2]
    assert len(crawl.items) == crawl.progress["items_count"] == 7
    assert crawl.report["finish_reason"] == "closespider_itemcount"
    assert time.monotonic() - began < 40


def test_a_crawl_ends_at_its_pages_though_its_start_does_not(run: Run, site: Site) -> None:
    crawl = run("endless", site.url, cwd=SHOP, max_pages=4, environ=PATIENT)
    assert len(site.paths()) == 4
    assert crawl.report["finish_reason"] == "closespider_pagecount"


def test_a_stopped_crawl_reports_though_a_callback_waits_for_ever(start: Start, site: Site) -> None:
    site.pages["/a"] = html("a")
    urls = [f"{site.url}/none", f"{site.url}/a"]
    attempt = start("generous", *urls, cwd=SHOP, params={"manner": "wait"}, environ=ENVIRON)
    deadline = time.monotonic() + 60
    while "waiting" not in (attempt.folder / "crawl.log").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    attempt.process.send_signal(signal.SIGINT)
    crawl = attempt.wait()
    assert crawl.report["finish_reason"] == "shutdown"
    assert "Gave up" in crawl.log


def test_our_own_spiders_keep_to_the_number_of_items_too(run: Run, site: Site) -> None:
    crawl = run("seo", f"{site.url}/tree/100", max_items=5)
    assert len(crawl.items) == 5
    assert crawl.report["finish_reason"] == "closespider_itemcount"


def test_a_log_has_an_end_and_the_crawl_goes_on(run: Run, site: Site) -> None:
    site.pages["/"] = html("a page")
    params = {"means": "log", "lines": 20_000}
    crawl = run("noisy", f"{site.url}/", cwd=SHOP, params=params, environ={"CRAWL_MAX_LOG_BYTES": "300000"})
    assert len(crawl.items) == 1
    assert (crawl.folder / "crawl.log").stat().st_size < 300_000
    lines = crawl.log.splitlines()
    assert sum("Log limit reached" in line for line in lines) == 1
    assert "Spider closed (finished)" in lines[-1]
    assert json.loads((crawl.folder / "report.json").read_text())["finish_reason"] == "finished"
