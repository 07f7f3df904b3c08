"""Crawls with pages of their own, and the result of each, from the site's access log and from the documents.

    with CrawlVerifier(stack, site) as verifier:
        verifier.begin(50)
        ...  # the fault
        verifier.wait()
        record("Broker away", "60 s, 50 crawls", recovered=…, **verifier.verdict())

A crawl is *lost* if no complete run of it is reported as complete, and *doubled* if there is more than one such run.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self, TypedDict

import pymongo
import redis
from patient_client import PatientClient
from pymongo.errors import PyMongoError
from sites.server import Site, links
from stack import FINAL, Stack

from gateway.jobs.dedupe import Entry
from gateway.stores.redis import dedupe_key

#: Documents that one query reads.
_BATCH = 500
#: Fields that a job must not have any more when it is final and settled.
_PASSING = ("assignment", "attend_at", "lane", "live_key", "waiting_reason")


class Verdict(TypedDict):
    lost: int
    doubled: int


class Crawl(NamedTuple):
    number: int
    paths: tuple[str, ...]
    #: The expected status. Only a crawl that finishes is checked for completeness.
    expected: str


class CrawlVerifier:
    def __init__(self, stack: Stack, site: Site, *, pages: int = 3) -> None:
        """`pages` is the number of pages of each crawl."""
        self.stack, self.site = stack, site
        self.client = PatientClient(stack)
        self._pages = pages
        #: Distinguishes its crawls from those of another verifier of the same stack.
        self._name = secrets.token_hex(4)
        self.crawls: list[Crawl] = []
        #: The job of each crawl, by its number, once it was accepted.
        self.jobs: dict[int, str] = {}
        #: Crawls that were not accepted, and must not run.
        self.refused: set[Crawl] = set()
        self._mongo = pymongo.MongoClient[dict[str, Any]](
            stack.environment()["MONGO_URI"], serverSelectionTimeoutMS=1000, tz_aware=True
        )
        self._database = self._mongo.get_default_database()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._mongo.close()

    def prepare(self, expected: str = "finished") -> tuple[Crawl, str]:
        """Make pages for one more crawl, and return its start URL. The caller requests it itself (see `accept`)."""
        number = len(self.crawls)
        start = f"/{self._name}/{number}/"
        leaves = [f"{start}{page}" for page in range(1, self._pages)]
        self.site.pages |= {start: links(*leaves), **{leaf: links(start) for leaf in leaves}}
        crawl = Crawl(number, (start, *leaves), expected)
        self.crawls.append(crawl)
        return crawl, self.site.url + start

    def accept(self, crawl: Crawl, job_id: str) -> None:
        self.jobs[crawl.number] = job_id

    def refuse(self, crawl: Crawl) -> None:
        self.refused.add(crawl)

    def begin(self, count: int, *, at_once: int = 1, expected: str = "finished", **fields: Any) -> list[Crawl]:
        """Request `count` crawls, `at_once` at a time, and repeat each until it is accepted."""

        def ask(prepared: tuple[Crawl, str]) -> Crawl:
            crawl, url = prepared
            self.accept(crawl, self.client.crawl(url, key=f"{self._name}-{crawl.number}", **fields))
            return crawl

        prepared = [self.prepare(expected) for _ in range(count)]
        with ThreadPoolExecutor(at_once) as users:
            return list(users.map(ask, prepared))

    def begun(self, count: int = 1, **fields: Any) -> float:
        """Seconds from a user's request for `count` crawls until the first of them begins."""
        asked = time.monotonic()
        return self.wait_for_visit(self.begin(count, **fields), after=asked)

    def first_visit(self, crawls: Iterable[Crawl], *, after: float = 0.0) -> float | None:
        """When one of them was first seen at the site (monotonic time)."""
        paths = {path for crawl in crawls for path in crawl.paths}
        return next(
            (visit.at for visit in list(self.site.access_log) if visit.at > after and visit.path in paths), None
        )

    def wait_for_visit(self, crawls: Iterable[Crawl], *, after: float, timeout: float = 120.0) -> float:
        """Seconds after `after` (monotonic time) until the first of the crawls visits the site again."""
        crawls, deadline = list(crawls), time.monotonic() + timeout
        while (at := self.first_visit(crawls, after=after)) is None:
            assert time.monotonic() < deadline, f"no crawl went on within {timeout} s"
            time.sleep(0.05)
        return at - after

    def wait(self, *, timeout: float = 150.0) -> None:
        """Wait until all crawls are final and settled, and hold nothing."""
        deadline = time.monotonic() + timeout
        while left := self._left():
            assert time.monotonic() < deadline, f"not over after {timeout} s: {left[:5]} ({len(left)} in all)"
            time.sleep(0.2)

    def check_each_once(self) -> None:
        self.wait()
        assert self.verdict() == Verdict(lost=0, doubled=0)

    def verdict(self, *, retried: bool = False) -> Verdict:
        """The result of crawls that are over. A page may be visited twice only if attempts may have been `retried`.
        An attempt that a busy node has not taken in time visits none.

        Fails if documents contradict themselves or each other.
        """
        assert len(set(self.jobs.values())) == len(self.jobs) == len(self.crawls) - len(self.refused)
        visits = Counter(visit.path for visit in list(self.site.access_log))
        assert not any(visits[path] for crawl in self.refused for path in crawl.paths)
        items = self._items()
        lost: list[int] = []
        doubled: list[int] = []
        for crawl, job in self._documents():
            attempts = len(job["attempts"]) + job.get("superseded", 0)
            counted = items[job["_id"], max(map(int, job["attempts"]), default=0)]
            complete = all(visits[path] for path in crawl.paths) and counted == len(crawl.paths)
            if job["status"] != crawl.expected or (crawl.expected == "finished" and not complete):
                lost.append(crawl.number)
            finished = sum(attempt.get("status") == "finished" for attempt in job["attempts"].values())
            most = max(visits[path] for path in crawl.paths)
            if most > (attempts if retried else 1) or finished > 1 or counted > len(crawl.paths):
                doubled.append(crawl.number)
            if crawl.number in (*lost[-1:], *doubled[-1:]):
                sys.stdout.write(f"crawl {crawl.number}: {[visits[path] for path in crawl.paths]} visits, {job}\n")
        self._look_at_keys()
        return Verdict(lost=len(lost), doubled=len(doubled))

    def _documents(self) -> Iterator[tuple[Crawl, dict[str, Any]]]:
        numbers = {job_id: number for number, job_id in self.jobs.items()}
        ids = list(numbers)
        for begin in range(0, len(ids), _BATCH):
            for job in self._database["jobs"].find({"_id": {"$in": ids[begin : begin + _BATCH]}}):
                yield self.crawls[numbers[job["_id"]]], job

    def _left(self) -> list[str]:
        """Descriptions of what is not over yet, or cannot be seen at the moment."""
        try:
            known = {job["_id"]: complaint(job) for _, job in self._documents()}
            held = self._held()
        except PyMongoError as error:
            return [str(error)]
        missing = [f"{job_id} has no document" for job_id in self.jobs.values() if job_id not in known]
        return [*missing, *filter(None, known.values()), *held]

    def _held(self) -> list[str]:
        """Descriptions of what our jobs hold beside their documents."""
        ours = set(self.jobs.values())
        found = self._database["holds"].find({"holders": {"$exists": True}})
        # tests also make some that cannot be read
        holds = [hold for hold in found if isinstance(hold["holders"], dict)]
        holders = [(attempt, hold["_id"]) for hold in holds for attempt in hold["holders"]]
        return [f"{holder} holds {what}" for holder, what in holders if holder.partition("-")[0] in ours]

    def _items(self) -> Counter[tuple[str, int]]:
        """Numbers of items by job and attempt."""
        ids = (item["_id"].split(":") for item in self._database["items"].find({}, {"_id": 1}))
        return Counter((job_id, int(attempt)) for job_id, attempt, _ in ids)

    def _look_at_keys(self) -> None:
        """Check that a dedupe key names the job of its crawl, and only if that job has results."""
        with redis.Redis.from_url(self.stack.environment()["REDIS_URL"]) as client:
            for _, job in self._documents():
                key = dedupe_key(job["user_id"], job["spec"]["spider"], job["fingerprint"])
                if (value := client.get(key)) is not None:
                    assert Entry.decode(value).job_id == job["_id"]
                    assert job["status"] in ("finished", "partial")


def complaint(job: dict[str, Any]) -> str | None:
    """Why a job is not over: its document contradicts itself, or something is still to be done. `None` if
    it is over.
    """
    name = f"{job['_id']} ({job['status']})"
    if job["status"] not in FINAL:
        return f"{name} waits: {job.get('waiting_reason')}"
    if job.get("settled") is not True:
        return f"{name} is not settled"
    if passing := [field for field in _PASSING if job.get(field) is not None]:
        return f"{name} still has {passing}"
    attempts = job["attempts"]
    if open_ones := [number for number, attempt in attempts.items() if "exit" not in attempt]:
        return f"{name} has open attempts: {open_ones}"
    last = attempts[max(attempts, key=int)].get("status") if attempts else None
    if attempts and last != job["status"]:
        return f"{name} is not what its last attempt is: {last}"
    return None
