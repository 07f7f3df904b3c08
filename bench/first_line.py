"""How soon a spider writes its first line: on the platform, by hand with `scrapy crawl`, and on stock Scrapyd."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
import uuid
from http.client import ACCEPTED
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.effort import Effort
from bench.our_platform import Site, Stack, running_stack
from bench.stock_scrapyd import (
    BEST,
    DEFAULT,
    SPIDER,
    SPIDER_LINE,
    StockScrapyd,
    environment,
    stock_scrapyd,
    write_project,
)
from bench.table import Row, alternate
from gateway.cli.egg_building import build_egg, read_project
from gateway.dispatch.dependencies import put_requirements

ROUNDS = 7
_turns = itertools.count()
#: Seconds between two polls of stock Scrapyd by default.
POLL_INTERVAL = 5.0
#: Name of the plain project as deployed, and most seconds until its first line.
PROJECT, WANTED = "plain", 0.2
#: Most seconds until the first line with requirements, and seconds until their environment has a warm process.
WANTED_OF_VENV, WARM_UP = 0.3, 10.0
WHAT = f'POST to the spider\'s first line ("{SPIDER_LINE}")'


def run(effort: Effort) -> list[Row]:
    rounds = effort.of(1, 5, ROUNDS)
    with (
        tempfile.TemporaryDirectory() as folder,
        Site() as site,
        running_stack(Path(folder) / "home", HTTP_CACHE_TTL="0") as stack,
        stock_scrapyd(Path(folder) / "stock", effort.of(BEST, DEFAULT)) as stock,
    ):
        plain = Path(folder) / "plain"
        plain.mkdir()
        write_project(plain)
        # SSE clients and files are polled closely, and neither side uses the other's processes
        deploy(stack, plain, Path(folder) / "plain.egg")
        rows = [by_hand(stack, plain, site, rounds), on_scrapyd(stack, stock, site, rounds)]
        rows.append(of_deployed(stack, site, "deployed", WANTED, rounds))
        deploy(stack, plain, Path(folder) / "locked.egg", f"scrapy=={version('scrapy')}\n")
        # the first crawl starts a Python; meanwhile the process is made from which later ones are forked
        line_of(stack, site)
        time.sleep(effort.of(0.0, WARM_UP))
        return [*rows, of_deployed(stack, site, "deployed, with an environment of its own,", WANTED_OF_VENV, rounds)]


def by_hand(stack: Stack, project: Path, site: Site, rounds: int) -> Row:
    ours, beside = alternate(lambda: streamed(stack, site), lambda: printed(project, site), rounds)
    return Row(
        f"{WHAT}, at an SSE client",
        "s",
        ours,
        beside,
        "bare `scrapy crawl` to the same line",
        ours / beside,
        "<= 0.3",
    )


def on_scrapyd(stack: Stack, stock: StockScrapyd, site: Site, rounds: int) -> Row:
    ours, beside = alternate(lambda: streamed(stack, site), lambda: logged(stock, site), rounds)
    return Row(
        f"{WHAT}, at an SSE client", "s", ours, beside,
        "stock Scrapyd, default polling: to the same line in its log file", ours / beside, "<= 0.1",
    )  # fmt: skip


def of_deployed(stack: Stack, site: Site, kind: str, wanted: float, rounds: int) -> Row:
    ours, beside = alternate(lambda: line_of(stack, site), lambda: wanted, rounds)
    what = f"{WHAT} of a project that is {kind} at an SSE client"
    return Row(what, "s", ours, beside, "what was asked for", ours / beside, "<= 1")


def line_of(stack: Stack, site: Site, project: str = PROJECT) -> float:
    page = fresh(site)
    return streamed(stack, site, project=project, spider=SPIDER, start_urls=[page], params={"url": page})


def deploy(stack: Stack, project: Path, egg: Path, requirements: str | None = None, name: str = PROJECT) -> None:
    """Deploy a project. Returns once it can be crawled."""
    build_egg(read_project(project), "1", egg, print)
    if requirements is not None:
        put_requirements(egg, requirements.encode())
    path, wait = f"{stack.url}/projects/{name}/versions", {"version": "1", "wait": 60}
    while (
        answer := stack.http.post(path, params=wait, content=egg.read_bytes(), timeout=120)
    ).status_code == ACCEPTED:
        pass  # its requirements are still being installed
    answer.raise_for_status()
    while not stack.http.get(f"{stack.url}/spiders", params={"project": name}).json()["spiders"]:
        time.sleep(0.1)


def streamed(stack: Stack, site: Site, **changes: Any) -> float:
    body = {"user_id": "bench", "spider": "seo", "start_urls": [fresh(site)], "ignore_cache": True, **changes}
    began, seen = time.perf_counter(), 0.0
    headers = {"Accept": "text/event-stream"}
    with stack.http.stream("POST", f"{stack.url}/crawl", json=body, headers=headers) as response:
        for line in response.iter_lines():
            if SPIDER_LINE in line:
                seen = seen or time.perf_counter() - began
            elif line == "event: end":
                break
    assert seen
    return seen


def printed(project: Path, site: Site) -> float:
    command = [str(Path(sys.executable).with_name("scrapy")), "crawl", SPIDER, "-a", f"url={fresh(site)}"]
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=project, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = next(time.perf_counter() - began for line in process.stderr if SPIDER_LINE in line)
        process.stderr.read()
    return seen


def logged(stock: StockScrapyd, site: Site) -> float:
    # each round begins at another moment between two polls, so that the median stands for any moment
    time.sleep((next(_turns) % ROUNDS / ROUNDS * POLL_INTERVAL - time.monotonic()) % POLL_INTERVAL)
    began = time.perf_counter()
    log = stock.log(stock.schedule(fresh(site)))
    while not (log.exists() and SPIDER_LINE in log.read_text()):
        time.sleep(0.005)
    seen = time.perf_counter() - began
    stock.wait_idle()
    return seen


def fresh(site: Site) -> str:
    """The tiny page under an address that was never requested before."""
    return f"{site.url}/latin-1?{uuid.uuid4().hex}"
