"""More crawls at once than can run: what is accepted runs once, the rest is told so, and no process grows with it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from crawl_verifier import Crawl, CrawlVerifier
from fault_table import record
from forms import FULL, full_or_short, in_full
from sites.server import Site
from stack import Stack, running_stack

pytestmark = in_full("refusals in web/test_quotas.py, many at once in services/test_user_limit.py")

CRAWLS = full_or_short(10_000, 24)
#: Seconds in which they are asked for; not more of them may be accepted than can run in the time there is.
RUSH = full_or_short(60, 0)
QUEUE_MAX = full_or_short(300, 0)
CLIENTS = 20
#: Bytes by which a process may grow. A waiting job that was kept somewhere, or a message, would be a kilobyte or two.
GROWTH = 64 << 20
PATIENCE = 240.0


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    variables = {"NODE_SLOTS": "16", "CRAWL_QUEUE_MAX": str(QUEUE_MAX)}
    with running_stack(tmp_path / "home", **variables) as stack:
        yield stack


class Scales(threading.Thread):
    """Weighs the gateway and the worker all the time."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(daemon=True)
        pids = stack.ready["pids"]
        self._processes = {name: psutil.Process(pids[name]) for name in ("gateway", "worker")}
        self._enough = threading.Event()
        self._before = self._weigh()
        self._most = Counter(self._before)

    def run(self) -> None:
        while not self._enough.wait(0.25):
            self._most |= Counter(self._weigh())

    def growth(self) -> dict[str, int]:
        """Of each, in bytes, at its most."""
        self._enough.set()
        self.join()
        return {name: most - self._before[name] for name, most in self._most.items()}

    def _weigh(self) -> dict[str, int]:
        return {name: process.memory_info().rss for name, process in self._processes.items()}


@pytest.mark.stack
@pytest.mark.timeout(480)
def test_of_any_number_of_crawls_each_runs_once_or_is_refused(stack: Stack) -> None:
    with Site() as site, CrawlVerifier(stack, site, pages=1) as verifier:
        # what is loaded when it is first used is no growth
        verifier.begin(full_or_short(20, 8), at_once=4)
        verifier.wait()
        scales = Scales(stack)
        scales.start()
        began = time.monotonic()
        answers = Crowd(verifier).rush()
        ended = time.monotonic()
        rushed = ended - began
        assert set(answers) == ({200, 429} if FULL else {200}), answers
        verifier.wait(timeout=PATIENCE)
        recovered = time.monotonic() - ended
        growth = scales.growth()
        grown = ", ".join(f"{name} +{size >> 20} MiB" for name, size in growth.items())
        record(
            "More crawls at once than can run", f"{CRAWLS} in {rushed:.0f} s, {answers[429]} told 429; {grown}",
            recovered=recovered, **verifier.verdict(),
        )  # fmt: skip
    assert max(growth.values()) < GROWTH, growth


class Crowd:
    """Users who ask for one crawl after another, as fast as they are answered, but not faster than planned."""

    def __init__(self, verifier: CrawlVerifier) -> None:
        self._verifier = verifier
        self._crawls = iter([verifier.prepare() for _ in range(CRAWLS)])
        self._lock = threading.Lock()
        self._address = urlsplit(verifier.stack.url).netloc
        self._began = time.monotonic()

    def rush(self) -> Counter[int]:
        """How often each status was answered."""
        with ThreadPoolExecutor(CLIENTS) as users:
            return sum((future.result() for future in [users.submit(self._ask) for _ in range(CLIENTS)]), Counter())

    def _ask(self) -> Counter[int]:
        answers: Counter[int] = Counter()
        line = http.client.HTTPConnection(self._address, timeout=60)
        while (prepared := self._next()) is not None:
            crawl, url = prepared
            time.sleep(max(0.0, self._began + RUSH * crawl.number / CRAWLS - time.monotonic()))
            answers[self._ask_for(crawl, url, line)] += 1
        line.close()
        return answers

    def _next(self) -> tuple[Crawl, str] | None:
        with self._lock:
            return next(self._crawls, None)

    def _ask_for(self, crawl: Crawl, url: str, line: http.client.HTTPConnection) -> int:
        body = json.dumps({"user_id": "crowd", "spider": "seo", "start_urls": [url]})
        line.request("POST", "/crawl", body, {"Content-Type": "application/json"})
        answer = line.getresponse()
        content = json.loads(answer.read())
        if answer.status == http.client.OK:
            self._verifier.accept(crawl, content["job_id"])
        else:
            assert int(answer.headers["Retry-After"]) > 0
            self._verifier.refuse(crawl)
        return answer.status
