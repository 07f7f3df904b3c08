"""A job's log of a million lines, requested from the gateway; and a log that grows by 3,000 lines a second, in a
browser.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import redis

from bench.effort import Effort
from bench.table import Row

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests")]
from integration.event_stream.gateway_process import GatewayProcess  # noqa: E402 - shared with the tests
from integration.event_stream.stage import Play, lines  # noqa: E402
from machine import find_program  # noqa: E402
from playwright.async_api import CDPSession, Page, async_playwright  # noqa: E402
from stores import embedded_mongo, valkey_server  # noqa: E402

from gateway.contract.log_line import split_entries  # noqa: E402
from gateway.logs.store import LogChunk, LogStore, count_lines  # noqa: E402
from gateway.stores import mongo  # noqa: E402

CHUNK = 64 << 10
#: One line in this many has no head: it belongs to the line before it.
CONTINUED = 20
#: Target values: seconds of an answer, and seconds for which the browser's main thread is blocked in all.
ANSWER, BLOCKED = 0.5, 1.0
ASKED = "what was asked for"
#: Lines per second, and the number of batches in which they come.
PACE, BATCHES = 3000, 25
#: A task of this many seconds or more blocks, as browsers define it.
LONG = 0.05
#: What a browser's main thread does for a page, by the names of its own counters.
PARTS = {"Script": "scripts", "RecalcStyle": "styles", "Layout": "layout"}
#: Most bytes by which the heap may grow meanwhile; a line of the log itself has 60.
GROWTH = 8 << 20
SEARCHES: dict[str, dict[str, Any]] = {
    "search, 1 line found": {"q": "page/999123?"},
    "search, none found": {"q": "no such text"},
    "search, every line found": {"q": "CRAWLED"},
    "search, level and text": {"q": "crawled", "level": "WARNING"},
    "search, text and a level that most have": {"q": "crawled", "level": "INFO"},
    "search, level and text that half of the lines have": {"q": "b", "level": "WARNING"},
    "search, logger and text": {"q": "referer", "logger": "seo"},
    "search, not ASCII": {"q": "größe"},
}


class Size(NamedTuple):
    #: Lines of the log that is searched, and the number of searches.
    lines: int
    rounds: int
    #: Seconds for which the other log grows.
    seconds: int


SIZES = Size(20_000, 1, 6), Size(1_000_000, 3, 24), Size(1_000_000, 5, 60)


class Stage(NamedTuple):
    url: str
    database: Any
    redis: redis.Redis


def run(effort: Effort) -> list[Row]:
    size = effort.of(*SIZES)
    with stage() as there:
        return [*searches(there, size), *asyncio.run(growing(there, size.seconds))]


@contextmanager
def stage() -> Iterator[Stage]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis_url = stack.enter_context(valkey_server(folder / "valkey"))
        mongo_url = stack.enter_context(embedded_mongo(folder / "mongo"))
        places = {"MONGO_URI": mongo_url, "REDIS_URL": redis_url, "DISCOVERYBOT_HOME": str(folder / "home")}
        app = "gateway.web.app:create_app"
        gateway = GatewayProcess(mongo_url, redis_url, folder / "gateway.log", app=app, **places)
        gateway.start()
        stack.callback(gateway.stop, signal.SIGKILL)
        gateway.wait_ready()
        yield Stage(f"http://127.0.0.1:{gateway.port}", mongo.connect(mongo_url), redis.Redis.from_url(redis_url))


def searches(there: Stage, size: Size) -> list[Row]:
    play = Play(there.database, there.redis)
    play.start()
    end = fill(LogStore(there.database), play.id, size.lines)
    with httpx2.Client(base_url=f"{there.url}/jobs/{play.id}/logs", timeout=60, trust_env=False) as http:
        seconds = {name: median(http, "search", query, size.rounds) for name, query in SEARCHES.items()}
        seconds["count by level"] = median(http, "index", {"level": "WARNING"}, size.rounds)
        seconds["read a line in its middle"] = median(http, "lines", {"line": size.lines // 2}, size.rounds)
        seconds["read from a position"] = median(http, "lines", {"from": f"1-{end // 2}"}, size.rounds)
    what = f"a log of {size.lines:,} lines, {end >> 20} MiB"
    return [Row(f"{what}: {name}", "s", took, ANSWER, ASKED, took / ANSWER, "<= 1") for name, took in seconds.items()]


def fill(store: LogStore, job_id: str, count: int) -> int:
    """Store a log of `count` lines. Returns its length in bytes."""
    draw, place, data, size = random.Random(1), 0, list[bytes](), 0
    for number in range(count):
        data.append(line(number, draw))
        size += len(data[-1])
        if size >= CHUNK or number == count - 1:
            whole = b"".join(data)
            counts = count_lines(split_entries(whole, place, "INFO")[0], None)
            store.append(LogChunk(job_id, 1, place, place + len(whole), "INFO", whole, None, counts))
            place, data, size = place + len(whole), [], 0
    return place


def line(number: int, draw: random.Random) -> bytes:
    if number % CONTINUED == CONTINUED - 1:
        return b"  crawled once more (referer: None)\n"
    level = draw.choice((b"DEBUG", b"INFO", b"INFO", b"WARNING"))
    logger = draw.choice((b"scrapy.core.engine", b"seo", b"scrapy.core.scraper"))
    head = b"2027-06-01T09:%02d:%02d.%03dZ [%b] %b:" % (
        number // 60_000 % 60, number // 1000 % 60, number % 1000, logger, level,
    )  # fmt: skip
    words = b"Crawled (200) <GET https://example.com/page/%d?x=%x> (referer: None)" % (number, draw.getrandbits(48))
    return b"%b %b\n" % (head, words)


def median(http: httpx2.Client, what: str, query: dict[str, Any], rounds: int) -> float:
    took = []
    for _ in range(rounds):
        began = time.monotonic()
        http.get(f"/{what}", params=query).raise_for_status()
        took.append(time.monotonic() - began)
    return statistics.median(took)


# --- in a browser

#: Notes all tasks of the main thread that take more than 50 ms.
_OBSERVE = """() => {
  window.blocked = 0;
  new PerformanceObserver(list => { for (const task of list.getEntries()) window.blocked += task.duration; })
    .observe({entryTypes: ['longtask']});
}"""


async def growing(there: Stage, seconds: int) -> list[Row]:
    play = Play(there.database, there.redis)
    play.start()
    play.write(lines(1, 100))
    async with async_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        program = find_program("chromium", "chromium-browser", "google-chrome")
        browser = await playwright.chromium.launch(executable_path=program, args=options)
        page = await browser.new_page(base_url=there.url)
        session = await page.context.new_cdp_session(page)
        await page.goto(f"/console/jobs/{play.id}/log")
        await page.get_by_text("line 100", exact=True).wait_for()
        await page.evaluate(_OBSERVE)
        await session.send("Performance.enable", {"timeDomain": "threadTicks"})
        await browser.start_tracing(page=page, categories=["toplevel", "__metadata"])
        begin = await cpu_seconds(session)
        await write(play, 100, seconds // 6)
        before = await heap(session)
        await write(play, 100 + seconds // 6 * PACE, seconds - seconds // 6)
        grown = await heap(session) - before
        end = await cpu_seconds(session)
        blocked = await shown_and_blocked(page, 100 + seconds * PACE)
        own = long_tasks(await browser.stop_tracing())
        await browser.close()
    busy, parts = end["Task"] - begin["Task"], {name: end[name] - begin[name] for name in PARTS}
    what = f"{PACE:,} lines a second for {seconds} s, shown"
    return [
        Row(f"{what}: the main thread blocked, in all", "s", blocked, BLOCKED, ASKED, blocked / BLOCKED, "<= 1"),
        Row(f"{what}: the same by CPU time", "s", own, BLOCKED, ASKED, own / BLOCKED, "<= 1"),
        Row(
            f"{what}: CPU time of the main thread", "s", busy, seconds, "a thread that is never idle", busy / seconds
        ),
        *(
            Row(f"{what}: of it {words}", "s", parts[name], busy, "all of it", parts[name] / busy)
            for name, words in PARTS.items()
        ),
        Row(f"{what}: growth of the heap", "B", grown, GROWTH, "our own limit", grown / GROWTH, "<= 1"),
    ]


async def write(play: Play, written: int, seconds: int) -> None:
    loop, each = asyncio.get_running_loop(), PACE // BATCHES
    began = loop.time()
    for batch in range(seconds * BATCHES):
        first = written + batch * each + 1
        await asyncio.to_thread(play.write, lines(first, first + each - 1))
        await asyncio.sleep(max(0, began + (batch + 1) / BATCHES - loop.time()))


async def heap(session: CDPSession) -> int:
    await session.send("HeapProfiler.collectGarbage")
    used = await session.send("Runtime.getHeapUsage")
    return int(used["usedSize"])


async def cpu_seconds(session: CDPSession) -> dict[str, float]:
    """CPU time of the main thread so far, by kind. Other processes on a busy machine do not affect it."""
    told = await session.send("Performance.getMetrics")
    values = {metric["name"]: float(metric["value"]) for metric in told["metrics"]}
    return {name: values[f"{name}Duration"] for name in ("Task", *PARTS)}


def long_tasks(trace: bytes) -> float:
    """CPU seconds of the main threads' tasks that take more than 50 ms of CPU."""
    events = json.loads(trace)["traceEvents"]
    names = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    tasks = [one for one in events if one["name"].endswith("::RunTask")]
    times = [one.get("tdur", 0) / 1e6 for one in tasks if names[one["pid"], one["tid"]] == "CrRendererMain"]
    assert sum(times), "the trace has no task of a main thread"
    return sum(took for took in times if took > LONG)


async def shown_and_blocked(page: Page, last: int) -> float:
    """Seconds for which the main thread was blocked, once the last line is shown."""
    await page.get_by_text(f"line {last}", exact=True).wait_for()
    return float(await page.evaluate("window.blocked")) / 1000
