"""A platform with something on each page, for the documentation: some days of a small company's crawls."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

from browser.console.platform import Console
from dataset_runs import DatasetRuns
from eggs import teller
from ended_runs import add_errors, found_error

from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.contract.crawl import Egg
from gateway.contract.log_line import survey
from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, FilesKept, SpiderInfo
from gateway.error_groups.attempt_errors import FoundErrors
from gateway.files.store import FileBytes, FileRecord, FilesPlace, FileStore
from gateway.jobs.job import Job, JobStatus, Occurrence, Trigger, WaitingReason, occurrence_id
from gateway.jobs.progress import Point, ProgressStore
from gateway.logs.store import LogChunk
from gateway.logs.volume import volume_of
from gateway.nodes.health import HeartbeatStore
from gateway.nodes.holds import HoldStore, Wish
from gateway.nodes.node import node_resource
from gateway.nodes.scrapyd import ScrapydClient
from gateway.nodes.store import Load
from gateway.projects.eggs import EggStore, SpiderStore
from gateway.requests.store import RequestChunk, RequestStore
from gateway.schedules.schedule import LedgerEntry, LedgerKind
from gateway.schedules.store import LedgerStore

#: Seconds between two signs of life: a node without one counts as dead soon.
_EVERY = 1.0
_SHOP = "https://shop.example"
_OFFERS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "category": {"type": "string", "title": "Category", "description": "Only this one.", "default": "all"},
        "with_reviews": {"type": "boolean", "title": "With reviews", "default": False},
        "max_price": {"type": "number", "title": "Highest price", "minimum": 0},
    },
}
#: What a node answers about a version's requirements.
_INSTALLED = {
    "state": "ready",
    "packages": ["price-parser==0.4.0", "attrs==25.4.0", "itemloaders==1.3.2"],
    "log": "Using Python 3.12\nResolved 3 packages in 41ms\nPrepared 1 package in 96ms\nInstalled 3 packages in 9ms\n"
    " + attrs==25.4.0\n + itemloaders==1.3.2\n + price-parser==0.4.0\n",
}
#: Lines of the log of the job in full, the seconds between them, and the errors among them.
_LINES, _LINE_SECONDS = 900, 0.26
_ERROR_LINES = tuple(range(170, _LINES, 180))
_ERRORS = len(_ERROR_LINES)
#: Its items, and its requests that failed: the first errors of the log. The others are of the spider.
_ITEMS = 240
#: Days since the last version of the spider with the offers.
_SINCE = 24
#: Of the runs of a dataset.
_DAYS = 13
_FAILED, _FIRST_FAILED, _FAILED_EACH = 3, 40, 97
_NAMES = ("Kettle", "Toaster", "Desk lamp", "Garden chair", "Bread knife", "Clock", "Kitchen scale", "Door mat")
_SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 6"><rect width="9" height="6" fill="{}"/></svg>'


class Sample:
    """`ids` has what the addresses of pages name: `job_id`, `schedule_id`, `project` and so on."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.key = str(console.key("anne", Scope.ADMIN).token)
        self.random = random.Random(7)
        self.ids: dict[str, str] = {"project": "shop", "version": "1.4", "spider": "offers"}
        self._settle()
        self._make_schedules()
        self._make_sites()
        self._run_jobs()
        self.ids["job_id"] = self._crawl_in_full().id
        self._fold_runs()
        self._sum_runs()
        self._use_keys()

    def _call(self, route: str, **body: Any) -> Any:
        method, path = route.split()
        headers = {"Authorization": f"Bearer {self.key}"}
        answer = self.console.http.request(method, path, json=body or None, headers=headers)
        assert answer.is_success, (route, answer.text)
        return answer.json() if answer.content else None

    def _settle(self) -> None:
        spiders = [
            SpiderInfo(project="default", name="seo", description="What search engines see of each page."),
            SpiderInfo(project="default", name="jobs", description="Job postings of a board."),
            *(
                SpiderInfo(project="shop", version=version, latest=version == "1.4", name=name, description=text,
                           needs_urls=False, params_schema=_OFFERS)
                for version in ("1.3", "1.4")
                for name, text in (("offers", "Offers with prices."), ("reviews", "What people say of them."))
            ),
        ]  # fmt: skip
        self._deploy(spiders)
        for node in ("n1", "n2"):
            SpiderStore(self.console.database).publish(node, spiders)
        self.beat()

    def _deploy(self, spiders: Sequence[SpiderInfo]) -> None:
        store = EggStore(self.console.database)
        for version in ("1.3", "1.4"):
            with NamedTemporaryFile() as file:
                file.write(teller(version))
                file.flush()
                content = store.write(Path(file.name))
            of_it = [spider for spider in spiders if spider.version == version]
            assert store.put(Egg("shop", version), content, None, of_it)

    def beat(self) -> None:
        """Two nodes, a worker and two beats give a sign of life."""
        eggs = [Egg("shop", "1.3"), Egg("shop", "1.4")]
        same = {"eggs": eggs, "max_render_slots": 2, "version": metadata.version("discoverybot")}
        for node, slots, load, free in (("n1", 8, Load(0.46, 0.58), 212), ("n2", 4, Load(0.12, 0.31), 96)):
            self.console.node(node, slots=slots, load=load, free_bytes=free << 30, **same)
        beats = HeartbeatStore(self.console.database)
        for name in ("worker:host-1:4711", "beat:host-1:4712", "beat:host-2:815"):
            beats.beat(name)

    def _make_schedules(self) -> None:
        for name, spider, interval in (
            ("Prices, every morning", "offers", "0 9 * * *"),
            ("Reviews, on weekdays", "reviews", "30 6 * * 1-5"),
            ("Pages of our own site", "seo", "every 4h"),
        ):
            body = {"spider": spider, "start_urls": [f"{_SHOP}/{spider}"], "interval": interval, "name": name}
            project = {} if spider == "seo" else {"project": "shop"}
            made = self._call("POST /schedules", user_id="anne", timezone="Europe/Paris", jitter=0, **body, **project)
            self.ids.setdefault("schedule_id", made["schedule_id"])
            self.ids[spider] = made["schedule_id"]
        self._note_the_past()

    def _note_the_past(self) -> None:
        """What became of the occurrences of the last days."""
        today = utc_now().astimezone(ZoneInfo("Europe/Paris")).replace(hour=9, minute=0, second=0, microsecond=0)
        entries = []
        for days in range(1, 9):
            # nine o'clock there, also where the clocks have changed in between
            due = (today - timedelta(days=days)).astimezone(UTC)
            late, kind = 0.4, LedgerKind.FIRED
            if days == 3:
                kind = LedgerKind.SKIPPED
            elif days == 5:
                late = 340.0
            status = JobStatus.ERROR if days == 2 else JobStatus.FINISHED
            run = {"schedule_id": self.ids["offers"], "slot": Occurrence(rev=1, at=due, due=due, fired_at=due)}
            run["id"] = occurrence_id(self.ids["offers"], due)
            ran = self._job(status, due, 300 + 9 * days, spider="offers", **run)
            entries.append(self._entry(ran.id, due, kind, late))
        LedgerStore(self.console.database).record(entries)

    def _entry(self, job_id: str, due: datetime, kind: LedgerKind, late: float) -> LedgerEntry:
        given = {"schedule_id": self.ids["offers"], "at": due, "due": due, "recorded_at": due, "rev": 1}
        reason = "the previous run had not ended" if kind is LedgerKind.SKIPPED else None
        return LedgerEntry.model_validate(
            {"job_id": job_id, "kind": kind, "late_by_seconds": late, "reason": reason, **given}
        )

    def _make_sites(self) -> None:
        for name in ("example-jobs", "north-board"):
            template = f"https://{name}.example/search?q={{keywords}}&l={{location}}"
            self._call(
                "POST /sites", name=name, search_url=template, interval_minutes=720, payload={"keywords": "nurse"}
            )
        made = self._call("POST /targets", site="example-jobs", keywords="welder", location="Lyon")
        self.ids |= {"name": "example-jobs", "target_id": str(made["id"])}

    def _job(self, status: JobStatus, began: datetime, ran: float, **fields: Any) -> Job:
        age = (utc_now() - began).total_seconds()
        spider = fields.pop("spider", "seo")
        project = "default" if spider in {"seo", "jobs"} else "shop"
        url = fields.pop("url", f"{_SHOP}/{spider}")
        pages = fields.pop("pages", round(ran * 1.6))
        counts = {
            "completed_pages": pages,
            "requested_pages": pages + 4,
            "items_count": pages * 3,
            "pages_per_s": 1.6,
        }
        given = {"user_id": "anne", "start_urls": [url], "spider": spider, "project": project, "progress": counts}
        if status in {JobStatus.PENDING, JobStatus.SCHEDULED}:
            del given["progress"]
        return self.console.job(status, age=age, ran=ran, **{**given, **fields})

    def _run_jobs(self) -> None:
        now, ends = utc_now(), (JobStatus.FINISHED,) * 7 + (JobStatus.PARTIAL, JobStatus.ERROR, JobStatus.CANCELLED)
        for number in range(60):
            status = ends[(number * 7) % 10]
            spider = ("seo", "offers", "jobs", "reviews")[number % 4]
            site = {"site": "example-jobs", "trigger": Trigger.MANUAL} if spider == "jobs" else {}
            failed = (
                {"reason": "site_failed", "message": "9 of 40 requests failed (the first: HTTP 503)"}
                if status is JobStatus.ERROR
                else {}
            )
            began = now - timedelta(seconds=200 + 130 * number + 9 * number * number)
            user = ("anne", "bert", "anne")[number % 3]
            ran = self.random.uniform(20, 120)
            self._job(status, began, ran, spider=spider, user_id=user, dead=number in {4, 24}, **site, **failed)
        # as many of bert's run as one user may have
        for number, reason in enumerate((WaitingReason.USER_QUOTA,) * 3):
            began = now - timedelta(seconds=40 + 55 * number)
            self._job(JobStatus.PENDING, began, 0, spider="reviews", user_id="bert", waiting_reason=reason)
        for number in range(2):
            began = now - timedelta(seconds=50 + 90 * number)
            job = self._job(JobStatus.RUNNING, began, 0, spider="seo", user_id="bert", pages=64 + 70 * number)
            slot = Wish(node_resource("n1"), str(AttemptId(job.id, 1)), 8)
            HoldStore(self.console.database).take([slot], "sample")

    def _crawl_in_full(self) -> Job:
        """A job with curves, a log, items, requests and files, as if it had ended just now."""
        began = utc_now() - timedelta(seconds=260)
        params = {"params": {"category": "kitchen", "with_reviews": True}, "schedule_id": self.ids["offers"]}
        params["reason"] = "site_timeout"
        params["message"] = f"{_ERRORS} of {380 + _ERRORS} requests failed (the first: no answer within 30 seconds)"
        job = self._job(JobStatus.PARTIAL, began, 240, spider="offers", pages=380, tags=["prices"], **params)
        store = ProgressStore(self.console.database)
        series = store.get(AttemptId(job.id, 1))
        for second in range(0, 241, 4):
            done = round(380 * min(1, (second / 240) ** 0.9))
            items, errors = round(done * _ITEMS / 380), sum(line * _LINE_SECONDS <= second for line in _ERROR_LINES)
            point = Point(began + timedelta(seconds=second), min(384, 40 + 2 * done), done, items, errors, done)
            series.add(point)
        store.save(series)
        self._write_log(job, began)
        self.console.change(job, **{"progress.errors_count": _ERRORS, "progress.items_count": _ITEMS})
        self._record_requests(job, began)
        self.console.results(job, [self._item(number) for number in range(_ITEMS)])
        self._keep_files(job)
        return job

    def _fold_runs(self) -> None:
        """The runs of a dataset in the last weeks, a held one after them. It has the name of the site."""
        runs = DatasetRuns(self.console.database, "anne")
        options = {"name": self.ids["name"], "key": ["url"]}
        for day in range(_DAYS, -1, -1):
            items = [self._item(number) for number in range(80 + 3 * (_DAYS - day) % 17)]
            for item in items[day % 5 :: 9]:
                item["price"] = round(float(item["price"] or 10) * 0.9, 2)
            if not day:
                items = [{**item, "price": [item["price"]]} for item in items]
            runs.crawl(items, dataset=options, started_at=utc_now() - timedelta(days=day, minutes=30))
            runs.fold()

    def _sum_runs(self) -> None:
        """All that have ended, and some of the weeks before, of which there are the daily sums alone."""
        ended = {"finished_at": {"$exists": True}}
        known = [self.console.jobs.get(one["_id"]) for one in self.console.database["jobs"].find(ended, {"_id": 1})]
        gone = []
        for day in range(9, 80):
            for spider in ("offers", "seo", "jobs", "reviews"):
                status = JobStatus.ERROR if (day * 7 + len(spider)) % 11 == 0 else JobStatus.FINISHED
                of = {"site": "example-jobs"} if spider == "jobs" else {"schedule_id": self.ids[spider]}
                began = utc_now() - timedelta(days=day, minutes=20)
                of |= {"version": "1.3" if day > _SINCE else "1.4"} if spider in {"offers", "reviews"} else {}
                gone.append(self._job(status, began, self.random.uniform(240, 420), spider=spider, **of))
        every = sorted([*known, *gone], key=lambda job: job.finished_at or job.created_at)
        for number, job in enumerate(every):
            add_errors(self.console.database, job, *self._errors_of(job, number))
        self.console.jobs.delete(*(job.id for job in gone))
        told = self._call("GET /errors?spider=offers&project=shop&q=float&sort=count")["errors"]
        self.ids["error_id"] = told[0]["error_id"]
        (stale,) = self._call("GET /errors?q=KeyError")["errors"]
        self._call(f"PATCH /errors/{stale['error_id']}", state="resolved", version="1.4")

    def _errors_of(self, job: Job, number: int) -> list[FoundErrors]:
        """Of the spider with the offers: one since version 1.4, one of before, and those of its site."""
        if job.spec.spider != "offers":
            return []
        since = utc_now() - timedelta(days=_SINCE)
        is_new = job.finished_at is not None and job.finished_at > since
        price = found_error(f"could not convert string to float: '€ {number},50'", 3 + number % 5)
        stars = found_error("'stars'", 7, name="KeyError", place="shop/spiders/reviews.py:rating")
        slow = found_error("HTTP 503 Service Unavailable", 1 + number % 3, kind="status")
        return [
            *([price] if is_new and number % 3 else []),
            *([] if is_new else [stars]),
            *([slow] if number % 4 else []),
        ]

    def _item(self, number: int) -> dict[str, Any]:
        name = f"{_NAMES[number % 8]} {number // 8 + 1}"
        price = None if number % 9 == 4 else round(4.9 + 3.7 * (number * 13 % 29), 2)
        seller = {"name": ("Blue Barn", "North & Son", "Kitchen Works")[number % 3], "rating": 3 + number % 3}
        return {
            "name": name,
            "price": price,
            "in_stock": number % 5 != 0,
            "seller": seller,
            "url": f"{_SHOP}/p/{number}",
        }

    def _write_log(self, job: Job, began: datetime) -> None:
        lines = [self._line(number, began) for number in range(_LINES)]
        data = "".join(lines).encode()
        found = survey(data, "INFO", None)
        chunk = LogChunk(job.id, 1, 0, len(data), "INFO", data, None, found.lines, volume_of(found.times, 0))
        self.console.logs.append(chunk)
        self.console.database["jobs"].update_one({"_id": job.id}, {"$set": {"attempts.1.log_end": len(data)}})

    def _line(self, number: int, began: datetime) -> str:
        at = f"{began + timedelta(seconds=number * _LINE_SECONDS):%Y-%m-%d %H:%M:%S}"
        if number == 0:
            return f"{at} [scrapy.core.engine] INFO: Spider opened\n"
        if number in _ERROR_LINES[:_FAILED]:
            url = f"{_SHOP}/p/{_FIRST_FAILED + _FAILED_EACH * _ERROR_LINES.index(number)}"
            return f"{at} [scrapy.core.scraper] ERROR: Error downloading <GET {url}>: no answer within 30 seconds\n"
        if number in _ERROR_LINES:
            return (
                f"{at} [scrapy.core.scraper] ERROR: Spider error processing <GET {_SHOP}/p/{number}>\n"
                'Traceback (most recent call last):\n  File "shop/spiders/offers.py", line 41, in parse\n'
                "ValueError: no price\n"
            )
        if number % 60 == 50:
            return f"{at} [shop.pipelines] WARNING: no price on {_SHOP}/p/{number}: kept without one\n"
        if number % 7 == 3:
            return f"{at} [shop.pipelines] INFO: {_NAMES[number % 8]} {number} kept\n"
        return f"{at} [scrapy.core.engine] DEBUG: Crawled (200) <GET {_SHOP}/p/{number}>\n"

    def _record_requests(self, job: Job, began: datetime) -> None:
        start = int(began.timestamp() * 1000)
        lines = [json.dumps(self._request(number, start)) for number in range(300)]
        data = "".join(f"{line}\n" for line in lines).encode()
        RequestStore(self.console.database).append(RequestChunk(job.id, 1, 0, len(data), data))

    def _request(self, number: int, start: int) -> dict[str, Any]:
        known = {"url": f"{_SHOP}/p/{number}", "at": start + 800 * number, "attempt": 1, "parent": f"{_SHOP}/offers"}
        if number % _FAILED_EACH == _FIRST_FAILED:
            return {**known, "ms": 30_000, "failed": True, "reason": "no answer within 30 seconds", "retries": 2}
        status = 404 if number % 60 == 33 else 200
        return {**known, "status": status, "ms": 80 + number * 37 % 700, "bytes": 20_000 + number * 911 % 60_000}

    def _keep_files(self, job: Job) -> None:
        store, attempt = FileStore(self.console.database, self._bytes()), AttemptId(job.id, 1)
        files = {f"images/{name.lower()}.svg": color for name, color in zip(_NAMES, _COLORS, strict=False)}
        contents = {name: _SVG.format(color).encode() for name, color in files.items()}
        contents["offers.csv"] = b"name,price\n" * 400
        for name, data in contents.items():
            store.keep(attempt, name, [data])
            times = {"modified_at": utc_now(), "stored_at": utc_now()}
            store.note(FileRecord.of(attempt, name, size=len(data), sha256="0" * 64, **times))
        end = ExitReport(attempt=1, ended_at=utc_now(), files=FilesKept(count=len(contents)))
        self.console.change(job, **{"attempts.1.exit": end.model_dump(exclude_none=True)})

    def _bytes(self) -> FileBytes:
        return FileBytes(FilesPlace(self.console.settings.files_location))

    def _use_keys(self) -> None:
        """Keys of others, and calls for the audit."""
        self.console.key("bert")
        self.console.key("dashboard", Scope.READ)
        for job in self._call("GET /jobs?status=pending")["jobs"][:1]:
            self._call(f"POST /jobs/{job['job_id']}/cancel")
        self._call(f"POST /schedules/{self.ids['reviews']}/pause")


_COLORS = ("#3b6ea8", "#a8573b", "#d9b13b", "#4c8f5a", "#7c5aa0", "#888", "#c0566e", "#3c9a9a")


@contextmanager
def living(sample: Sample) -> Iterator[None]:
    """Nodes, worker and beats give signs of life while this lasts, and nodes say what they have installed."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(_EVERY):
            sample.beat()

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with patch.object(ScrapydClient, "dependencies", lambda *_: _INSTALLED):
            yield
    finally:
        over.set()
        thread.join(60)
