"""The comparison: Scrapyd as installed, with a plain Scrapy project, in a folder of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from bench.cpu import end_tree

SPIDER = "page"
#: Seconds between two checks whether all crawls have ended. Both sides use it, and its cost counts for both.
POLL = 0.1
#: A line of Scrapy's own, which both sides log when the spider is about to request its first page.
SPIDER_LINE = "Spider opened"
#: Options of stock Scrapyd: its default polling; and the best options for many crawls at once. With these it polls so
#: often that nothing waits, and runs as many processes as keep the cores busy. (With more processes, crawls were
#: measured to cost more and to end no sooner.)
DEFAULT = ""
BEST = f"poll_interval = 0.02\nmax_proc = {1 + (os.cpu_count() or 1)}\n"

_SETTINGS = 'SPIDER_MODULES = ["plain.spiders"]\nROBOTSTXT_OBEY = True\nLOG_LEVEL = "INFO"\n'
#: A spider that writes exactly what `seo` writes about a page: one line of log, one item.
_SPIDER = textwrap.dedent("""\
    import scrapy

    class PageSpider(scrapy.Spider):
        name = "page"

        def __init__(self, url, **kwargs):
            super().__init__(**kwargs)
            self.start_urls = [url]

        def parse(self, response):
            self.logger.info("%d %s", response.status, response.url)
            yield {"url": response.url, "status": response.status, "title": response.css("title::text").get()}
    """)


def write_project(folder: Path) -> None:
    package = folder / "plain"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "settings.py").write_text(_SETTINGS)
    (package / "spiders.py").write_text(_SPIDER)
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = plain.settings\n")


def environment() -> dict[str, str]:
    """The caller's environment without the settings of our own node. Byte code is cached, as on our side."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SCRAPY", "DISCOVERYBOT_")) and name != "PYTHONDONTWRITEBYTECODE"
    }


class StockScrapyd:
    def __init__(self, folder: Path, url: str, process: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.process = process
        self._http = httpx2.Client(base_url=url, timeout=30, trust_env=False)

    def schedule(self, page: str) -> str:
        """Schedule a crawl of the page. Returns the job's id."""
        answer = self._http.post("/schedule.json", data={"project": "default", "spider": SPIDER, "url": page})
        return str(self._checked(answer)["jobid"])

    def unfinished(self) -> int:
        jobs = self._checked(self._http.get("/listjobs.json", params={"project": "default"}))
        return len(jobs["pending"]) + len(jobs["running"])

    def running_pids(self) -> list[int]:
        return [job["pid"] for job in self._checked(self._http.get("/listjobs.json"))["running"]]

    def log(self, job: str) -> Path:
        return self.folder / "logs" / "default" / SPIDER / f"{job}.log"

    def wait_idle(self, timeout: float = 180) -> None:
        deadline = time.monotonic() + timeout
        while self.unfinished():
            assert time.monotonic() < deadline, "stock Scrapyd's crawls do not end"
            time.sleep(POLL)

    @staticmethod
    def _checked(answer: httpx2.Response) -> Any:
        told = answer.raise_for_status().json()
        assert told["status"] == "ok", told
        return told


@contextmanager
def stock_scrapyd(folder: Path, options: str) -> Iterator[StockScrapyd]:
    """A Scrapyd that is warm: its first request, which lists the project's spiders, is over."""
    folder.mkdir()
    write_project(folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "scrapyd.conf").write_text(f"[scrapyd]\nhttp_port = {port}\n{options}")
    command = [str(Path(sys.executable).with_name("scrapyd"))]
    with (folder / "scrapyd.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=log, stderr=log)
    try:
        stock = StockScrapyd(folder, f"http://127.0.0.1:{port}", process)
        _warm_up(stock)
        yield stock
    finally:
        end_tree(process)


def _warm_up(stock: StockScrapyd) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            stock.schedule(f"http://127.0.0.1:9/{uuid.uuid4().hex}")
            break
        except httpx2.TransportError:
            assert time.monotonic() < deadline, (stock.folder / "scrapyd.log").read_text()
            time.sleep(0.1)
    stock.wait_idle()
