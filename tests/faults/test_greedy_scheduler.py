"""One user with very many schedules that run each second, and many crawls for later: nobody else notices."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pymongo
import pytest
from crawl_verifier import CrawlVerifier, Verdict
from fault_table import record
from forms import full_or_short, in_full
from sites.server import Site, links
from stack import Stack, running_stack, wait_until

from gateway.clock import to_iso, utc_now

pytestmark = in_full("a user's share in services/test_scheduling.py and test_fair_queue.py")

#: Schedules that he asks for, and that he gets; and crawls for a second or two ahead.
ASKED = full_or_short(400, 24)
SCHEDULES = full_or_short(300, 16)
LATER = full_or_short(200, 40)
#: Seconds for which he goes on.
SECONDS = full_or_short(60, 4)
WAITING, RUNNING = 20, 4
#: Seconds within which others' crawls start, and their schedules fire.
PROMPT = full_or_short(5.0, 20.0)
#: Beyond what may wait, by what was counted before it was inserted; and those that go back for another attempt.
SLACK = WAITING + RUNNING


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    quotas = {"CRAWL_USER_WAITING_MAX": WAITING, "CRAWL_USER_RUNNING_MAX": RUNNING, "CRAWL_QUEUE_MAX": 3 * WAITING}
    variables = {name: str(value) for name, value in quotas.items()}
    with running_stack(tmp_path / "home", CRAWL_USER_SCHEDULES_MAX=str(SCHEDULES), **variables) as stack:
        yield stack


class Greedy:
    """`greedy`, with a page for each of his schedules."""

    def __init__(self, stack: Stack, site: Site, verifier: CrawlVerifier) -> None:
        self._stack, self._site, self._witness = stack, site, verifier
        self._mongo: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(stack.environment()["MONGO_URI"])
        self._database = self._mongo.get_default_database()
        self._urls = {f"/greedy/{number}": f"{site.url}/greedy/{number}" for number in range(ASKED)}
        site.pages |= {path: links() for path in self._urls}
        #: Paths by schedule.
        self.schedules: dict[str, str] = {}

    def ask(self) -> None:
        with ThreadPoolExecutor(8) as hands:
            when = {"interval": "every 1s", "overlap": "allow", "jitter": 0}
            answers = hands.map(lambda url: self._post(url, **when), self._urls.values())
            for path, answer in zip(self._urls, answers, strict=True):
                if answer is not None:
                    self.schedules[answer["job_id"]] = path
            list(hands.map(self._ask_for_later, range(LATER)))

    def _ask_for_later(self, number: int) -> None:
        crawl, url = self._witness.prepare()
        at = utc_now() + timedelta(seconds=1 + number % 2)
        answer = self._post(url, schedule_at=to_iso(at))
        if answer is None:
            self._witness.refuse(crawl)
        else:
            self._witness.accept(crawl, answer["job_id"])

    def _post(self, url: str, **when: Any) -> dict[str, Any] | None:
        """`None` where he is told that he has enough."""
        body = {"user_id": "greedy", "spider": "seo", "start_urls": [url], "depth": 0, **when}
        answer = self._stack.http.post(f"{self._stack.url}/crawl", json=body)
        if answer.status_code == httpx2.codes.TOO_MANY_REQUESTS:
            assert answer.json()["error"]["code"] == "user_quota"
            return None
        assert answer.status_code == httpx2.codes.ACCEPTED, answer.text
        return dict(answer.json())

    def waiting(self) -> int:
        return self._database["jobs"].count_documents({"user_id": "greedy", "status": "pending"})

    def end(self) -> None:
        with ThreadPoolExecutor(4) as hands:
            paused = hands.map(self._pause, self.schedules)
            assert set(paused) == {200}
        wait_until(lambda: not self._unfinished(), what="the end of what had begun", timeout=180)

    def _pause(self, schedule_id: str) -> int:
        return self._stack.http.post(f"{self._stack.url}/schedules/{schedule_id}/pause", timeout=60).status_code

    def _unfinished(self) -> int:
        live = {"status": {"$in": ["scheduled", "pending", "running"]}, "user_id": "greedy"}
        return self._database["jobs"].count_documents(live)

    def ledger(self, schedule_ids: Iterable[str]) -> list[dict[str, Any]]:
        return list(self._database["schedule_ledger"].find({"schedule_id": {"$in": list(schedule_ids)}}))

    def verdict(self) -> Verdict:
        """Of his schedules' runs: each occurrence that the ledger calls fired ran once, the others never."""
        fired = {entry["_id"] for entry in self.ledger(self.schedules) if entry["kind"] == "fired"}
        jobs = list(self._database["jobs"].find({"schedule_id": {"$in": list(self.schedules)}}))
        lost = len(fired - {job["_id"] for job in jobs if job["status"] == "finished"})
        attempts: Counter[str] = Counter()
        for job in jobs:
            earlier = self._database["attempts"].count_documents({"_id": {"$regex": f"^{job['_id']}:"}})
            attempts[self.schedules[job["schedule_id"]]] += len(job["attempts"]) + earlier
        visits = Counter(visit.path for visit in list(self._site.access_log))
        doubled = sum(max(0, visits[path] - attempts[path]) for path in self.schedules.values())
        return Verdict(lost=lost, doubled=doubled + len({job["_id"] for job in jobs} - fired))

    def close(self) -> None:
        self._mongo.close()


@pytest.mark.stack
@pytest.mark.timeout(480)
def test_the_schedules_of_one_user_hold_up_nobody_else(stack: Stack, site: Site) -> None:
    with CrawlVerifier(stack, site, pages=1) as verifier:
        greedy = Greedy(stack, site, verifier)
        site.pages["/other"] = links()
        when = {"interval": "every 2s", "jitter": 0, "overlap": "allow"}
        order = {"user_id": "patient", "spider": "seo", "start_urls": [f"{site.url}/other"], **when}
        patient = stack.http.post(f"{stack.url}/crawl", json=order).raise_for_status().json()["job_id"]
        greedy.ask()
        assert 0 < len(greedy.schedules) <= SCHEDULES
        assert verifier.refused, "all that he asked for was accepted"
        others, most = 0, 0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            assert verifier.begun(user_id=f"other{others}") < PROMPT
            others, most = others + 1, max(most, greedy.waiting())
            time.sleep(0.5)
        wait_until(lambda: "skipped within a minute" in stack.check("schedules")["message"], what="a word in /health")
        assert stack.check("schedules")["status"] == "ok", "occurrences were late"
        assert most <= WAITING + SLACK
        greedy.end()
        reasons = {entry["reason"] for entry in greedy.ledger(greedy.schedules) if entry["kind"] == "skipped"}
        assert all(reason.startswith("user_quota: ") for reason in reasons)
        fired = greedy.ledger([patient])
        assert {entry["kind"] for entry in fired} == {"fired"}
        assert len(fired) > SECONDS / 2 - PROMPT
        assert max(entry["late_by_seconds"] for entry in fired) < PROMPT
        stack.http.post(f"{stack.url}/schedules/{patient}/pause").raise_for_status()
        verifier.wait()
        mine, his = verifier.verdict(), greedy.verdict()
        greedy.close()
    injected = f"{len(greedy.schedules)} at `every 1s`, {LATER} for later; {others} crawls of others, {SECONDS} s"
    found = Verdict(lost=mine["lost"] + his["lost"], doubled=mine["doubled"] + his["doubled"])
    record("A greedy scheduler", injected, recovered=None, **found)
