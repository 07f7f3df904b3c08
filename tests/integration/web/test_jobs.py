from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import bson
import httpx2
import pytest
from jobs import make_job
from pymongo import MongoClient, monitoring
from pymongo.database import Database

from gateway.clock import to_iso, utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import Attempt, Job, JobStatus
from gateway.jobs.queries import JobFilter, JobQueries
from gateway.jobs.store import JobStore
from gateway.logs.store import LogChunk, LogStore
from gateway.nodes.store import NodeStore

Keep = Callable[[Job], Job]
ENDED = {"status": JobStatus.FINISHED, "settled": True, "live_key": None}


def ran(number: int = 1, *, errors: int = 0) -> Attempt:
    now = utc_now()
    progress = Progress(requested_pages=5, completed_pages=4, items_count=4, errors_count=errors, at=now)
    report = SpiderReport(
        finish_reason="finished",
        progress=progress,
        filled={"title": 4, "price": 3},
        stats={"downloader/request_count": 5},
        ended_at=now,
    )
    return Attempt(
        attempt=number,
        node="n1",
        dispatched_at=now,
        started_at=now,
        ended_at=now,
        exit=ExitReport(attempt=number, ended_at=now, exit_code=0, cpu_seconds=1.5, report=report),
        status=JobStatus.FINISHED,
        log_end=4321,
    )


def test_the_list_is_newest_first_and_paged_without_gap_or_repeat(
    gateway: httpx2.Client, keep: Keep, user: str
) -> None:
    # several jobs of the same millisecond are in the order of their ids
    made = [keep(make_job(user_id=user, created_at=utc_now() - timedelta(seconds=n // 3))) for n in range(8)]
    expected = [job.id for job in sorted(made, key=lambda job: (job.created_at, job.id), reverse=True)]
    listed: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = gateway.get("/jobs", params={"user_id": user, "limit": 3, **after}).json()
        listed += [job["job_id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert listed == expected


def test_filters_narrow_the_list(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    old = keep(make_job(user_id=user, created_at=utc_now() - timedelta(days=2), tags=["weekly"], **ENDED))
    new = keep(make_job(user_id=user, tags=["daily", "x.y"], message="3 of 9 requests failed"))

    def found(**filters: object) -> list[str]:
        answer = gateway.get("/jobs", params={"user_id": user, **filters}).json()
        return [job["job_id"] for job in answer["jobs"]]

    yesterday = to_iso(utc_now() - timedelta(days=1))
    assert found() == found(status=["finished", "pending"]) == [new.id, old.id]
    assert found(status="finished") == found(tag="weekly") == found(until=yesterday) == [old.id]
    assert found(since=yesterday) == found(q="REQUESTS FAILED") == found(q=new.id[:12]) == [new.id]
    assert found(id_prefix=new.id[:8]) == found(job_id=[new.id, "5f" * 16]) == [new.id]
    assert found(q="x.y") == [new.id]
    assert found(q="d.ily") == found(spider="other") == found(status="running") == []
    assert found(q="site.example") == [new.id, old.id]


def test_a_search_that_ran_out_of_time_says_how_far_it_came(
    gateway: httpx2.Client, keep: Keep, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FEW": 1, "FIRST_LOOK": 2, "SEARCH_SECONDS": 0}.items():
        monkeypatch.setattr(f"gateway.jobs.queries.{name}", value)
    made = [keep(make_job(user_id=user, created_at=utc_now() - timedelta(seconds=n))) for n in range(5)]
    asked = {"user_id": user, "q": made[-1].id}
    pages = [gateway.get("/jobs", params=asked).json()]
    while pages[-1]["next"]:
        pages.append(gateway.get("/jobs", params={**asked, "after": pages[-1]["next"]}).json())
    assert [page["searched_to"] for page in pages] == [to_iso(made[1].created_at), to_iso(made[3].created_at), None]
    assert [len(page["jobs"]) for page in pages] == [0, 0, 1]


def test_a_job_tells_who_was_told_of_its_end_and_why_others_were_not(
    gateway: httpx2.Client, keep: Keep, user: str
) -> None:
    told = {
        "webhooks": ["http://a.example/", "http://b.example/"],
        "webhooks_delivered": ["http://a.example/"],
        "webhook_message": "b.example: answered 307, a redirect, and redirects are not followed",
    }
    detail = gateway.get(f"/jobs/{keep(make_job(user_id=user, **told, **ENDED)).id}").json()
    assert {name: detail[name] for name in told} == told


def test_a_waiting_job_tells_its_place_in_the_queue(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    # no job of another test has waited for so long, so this one is the first, whatever the priorities
    long_ago = utc_now() - timedelta(days=9000)
    first = keep(make_job(user_id=user, created_at=long_ago))
    urgent = keep(make_job(user_id=user, created_at=long_ago, priority=1))
    last = keep(make_job(user_id=user, created_at=long_ago + timedelta(seconds=1)))
    places = [gateway.get(f"/jobs/{job.id}/status").json()["queue_position"] for job in (urgent, first, last)]
    # users take turns, and jobs of other tests may wait in between
    assert places[0] == 1
    assert places == sorted(set(places))


def test_the_status_of_a_running_job_has_its_counts(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    attempt = Attempt(attempt=2, node="n1", dispatched_at=utc_now())
    progress = Progress(requested_pages=9, completed_pages=8, items_count=7, errors_count=1, pages_per_s=2.5)
    job = keep(
        make_job(
            user_id=user,
            status=JobStatus.RUNNING,
            attempt=2,
            attempts={"2": attempt},
            progress=progress,
            started_at=utc_now(),
        )
    )
    status = gateway.get(f"/jobs/{job.id}/status").json()
    assert (status["status"], status["spider_job_id"], status["node"]) == ("running", f"{job.id}-2", "n1")
    counts = progress.model_dump(exclude_defaults=True)
    assert {name: status[name] for name in counts} == counts
    assert status["started_at"].endswith("Z")
    assert (status["queue_position"], status["waiting_reason"]) == (None, None)


def test_the_detail_lists_every_attempt_with_its_own_record(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    attempts = {"10": ran(10), "9": ran(9, errors=3)}
    job = keep(make_job(user_id=user, attempt=10, attempts=attempts, **ENDED))
    detail = gateway.get(f"/jobs/{job.id}").json()
    assert [attempt["attempt"] for attempt in detail["attempts"]] == [9, 10]
    first = detail["attempts"][0]
    assert (first["spider_job_id"], first["log_bytes"]) == (f"{job.id}-9", 4321)
    assert first["progress"]["at"] == first["ended_at"], "in whole milliseconds, as every time"
    assert (first["progress"]["errors_count"], first["stats"]) == (3, {"downloader/request_count": 5})
    assert (first["exit"]["finish_reason"], first["exit"]["exit_code"]) == ("finished", 0)
    assert first["filled"] == {"title": 4, "price": 3}
    assert detail["spec"]["start_urls"] == ["http://site.example/"]


def test_a_waiting_job_is_cancelled_at_once_and_only_once(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    job = keep(make_job(user_id=user))
    assert gateway.post(f"/jobs/{job.id}/cancel").json()["status"] == "cancelled"
    # a client that got no answer asks again
    assert gateway.post(f"/jobs/{job.id}/cancel").json()["status"] == "cancelled"


def test_a_running_job_is_asked_to_end(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    attempt = Attempt(attempt=1, node="n1", dispatched_at=utc_now())
    job = keep(make_job(user_id=user, status=JobStatus.RUNNING, attempt=1, attempts={"1": attempt}))
    answer = gateway.post(f"/jobs/{job.id}/cancel").json()
    assert answer["status"] == "running"
    assert answer["cancel_requested_at"].endswith("Z")


def test_a_job_is_paused_and_resumed_and_each_only_once(
    gateway: httpx2.Client, keep: Keep, jobs: JobStore, user: str
) -> None:
    job = keep(make_job(user_id=user))
    counted = gateway.get("/jobs/health").json()["jobs"]["paused"]
    refused = gateway.post(f"/jobs/{job.id}/resume")
    assert (refused.status_code, "pending" in refused.json()["error"]["message"]) == (409, True)
    paused = gateway.post(f"/jobs/{job.id}/pause").json()
    assert (paused["status"], paused["waiting_reason"]) == ("paused", None)
    assert paused["expires_at"] > paused["pause_requested_at"]
    again = gateway.post(f"/jobs/{job.id}/pause")
    assert (again.status_code, "paused already" in again.json()["error"]["message"]) == (409, True)
    listed = gateway.get("/jobs", params={"user_id": user, "status": "paused"}).json()["jobs"]
    assert [one["job_id"] for one in listed] == [job.id]
    assert gateway.get("/jobs/health").json()["jobs"]["paused"] == counted + 1
    assert gateway.delete(f"/jobs/{job.id}").status_code == 409
    assert jobs.find_live(job.fingerprint)
    resumed = gateway.post(f"/jobs/{job.id}/resume").json()
    assert (resumed["status"], resumed["pause_requested_at"], resumed["message"]) == ("pending", None, None)
    gateway.post(f"/jobs/{job.id}/pause")
    assert gateway.post(f"/jobs/{job.id}/cancel").json()["status"] == "cancelled"


def test_a_crawl_that_would_begin_anew_is_paused_only_if_that_is_asked_for(
    gateway: httpx2.Client, keep: Keep, user: str
) -> None:
    attempt = Attempt(attempt=1, node="n1", dispatched_at=utc_now())
    progress = Progress(completed_pages=3, can_go_on=False)
    job = keep(
        make_job(user_id=user, status=JobStatus.RUNNING, attempt=1, attempts={"1": attempt}, progress=progress)
    )
    refused = gateway.post(f"/jobs/{job.id}/pause")
    assert (refused.status_code, "begin_anew" in refused.json()["error"]["message"]) == (409, True)
    asked = gateway.post(f"/jobs/{job.id}/pause", params={"begin_anew": True}).json()
    assert (asked["status"], asked["pause_requested_at"] is None) == ("running", False)


def test_an_ended_job_is_run_again_as_a_new_one(
    gateway: httpx2.Client, keep: Keep, jobs: JobStore, user: str
) -> None:
    old = keep(make_job(user_id=user, **ENDED))
    answer = gateway.post(f"/jobs/{old.id}/retry").json()
    assert answer["retry_of"] == old.id
    new = jobs.get(answer["job_id"])
    assert (new.retry_of, new.spec, new.status) == (old.id, old.spec, JobStatus.PENDING)
    assert gateway.post(f"/jobs/{new.id}/retry").status_code == 409


def test_an_ended_job_is_deleted_with_its_items(
    gateway: httpx2.Client, keep: Keep, items: ItemStore, user: str
) -> None:
    job = keep(make_job(user_id=user, attempt=1, attempts={"1": ran()}, **ENDED))
    items.insert([Item(job.id, 1, 10, {"a": 1})])
    response = gateway.delete(f"/jobs/{job.id}")
    assert (response.status_code, response.content) == (204, b"")
    assert gateway.get(f"/jobs/{job.id}").status_code == 404
    assert items.count(job.id) == 0


def test_a_living_job_is_not_deleted(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    job = keep(make_job(user_id=user))
    assert gateway.delete(f"/jobs/{job.id}").status_code == 409
    assert gateway.get(f"/jobs/{job.id}").status_code == 200


@pytest.mark.parametrize(
    ("method", "what"),
    [("POST", "/cancel"), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/retry"), ("DELETE", "")],
)
def test_nothing_can_be_done_with_a_job_that_is_not_there(gateway: httpx2.Client, method: str, what: str) -> None:
    response = gateway.request(method, f"/jobs/{'f' * 32}{what}")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "job_not_found")


def test_the_health_of_the_queue_is_not_taken_for_a_job(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    before = gateway.get("/jobs/health").json()
    keep(make_job(user_id=user, created_at=utc_now() - timedelta(minutes=5)))
    after = gateway.get("/jobs/health").json()
    assert after["jobs"]["pending"] == before["jobs"]["pending"] + 1
    assert after["oldest_waiting_seconds"] >= 300


def test_nodes_and_spiders_are_listed(gateway: httpx2.Client, nodes: NodeStore) -> None:
    now = utc_now()
    nodes.heartbeat("n1", url="http://127.0.0.1:6800", max_slots=4, alive=["a-1"], present=[], beating_since=now)
    listed = {node["name"]: node for node in gateway.get("/nodes").json()["nodes"]}
    assert (listed["n1"]["healthy"], listed["n1"]["free_slots"], listed["n1"]["running"]) == (True, 4, 1)
    spider = gateway.get("/spiders", params={"project": "default"}).json()["spiders"][0]
    assert (spider["name"], list(spider["params_schema"]["properties"])) == ("seo", ["robots"])


def test_a_job_of_an_older_version_looks_the_same_once_its_attempts_have_been_moved(
    gateway: httpx2.Client, keep: Keep, jobs: JobStore, database: Database[dict[str, Any]], user: str
) -> None:
    attempts = {str(number): ran(number).model_copy(update={"log_end": 9}) for number in range(1, 51)}
    job = keep(make_job(user_id=user, status=JobStatus.RUNNING, attempt=50, attempts=attempts, failures=49))
    logs = LogStore(database)
    for number in attempts:
        logs.append(LogChunk(job.id, int(number), 0, 9, "INFO", b"line %03d\n" % int(number)))

    def shown() -> list[Any]:
        answers = [gateway.get(f"/jobs/{job.id}{rest}") for rest in ("", "/timeline", "/requests", "/files")]
        download = gateway.get(f"/jobs/{job.id}/logs", headers={"Accept": "text/plain"}).text
        listed = gateway.get("/jobs", params={"user_id": user}).json()["jobs"]
        return [*(answer.json() for answer in answers), download, listed]

    before = shown()
    assert len(before[0]["attempts"]) == len(before[4].splitlines()) == 50
    jobs.attempts.supersede(job.id)
    assert list(jobs.get(job.id).attempts) == ["50"]
    assert shown() == before
    with gateway.stream("GET", f"/jobs/{job.id}/logs") as stream:
        lines = (line for line in stream.iter_lines() if "line 0" in line)
        assert [json.loads(next(lines)[6:])["msg"] for _ in range(50)] == [f"line {n:03d}" for n in range(1, 51)]
    assert gateway.get(f"/jobs/{job.id}/items", params={"attempt": 3}).status_code == 200
    assert gateway.get(f"/jobs/{job.id}/items", params={"attempt": 51}).status_code == 422


def test_a_list_reads_what_it_shows_and_not_whole_jobs(
    gateway: httpx2.Client, database: Database[dict[str, Any]], keep: Keep, user: str
) -> None:
    spec = CrawlSpec(
        spider="seo",
        start_urls=tuple(f"https://shop.example.com/{number}/{'x' * 200}" for number in range(1000)),
        params={"list": "x" * 50_000},
    )
    stats = {f"stat/{number}": "x" * 100 for number in range(160)}
    attempts = {"2": ran(2), "3": ran(3)}
    for attempt in attempts.values():
        assert attempt.exit
        assert attempt.exit.report
        attempt.exit.report.stats = stats
    for _ in range(20):
        keep(make_job(user_id=user, spec=spec, attempt=3, attempts=attempts, superseded=1, dead=True, **ENDED))
    # as if an older version had written the jobs
    database["jobs"].update_many({"user_id": user}, {"$unset": {"superseded": ""}})
    whole = sum(len(bson.encode(job)) for job in database["jobs"].find({"user_id": user}))
    answered = Answered()
    with connected(database, answered) as seen:
        listed = JobQueries(seen).page(JobFilter(user_id=user), 200).jobs
    assert (len(listed), whole > 6_000_000, answered.size < 150_000) == (20, True, True), (whole, answered.size)
    assert (listed[0].newest, listed[0].node, listed[0].attempts_count) == (3, "n1", 2)
    database["jobs"].update_one({"_id": listed[0].id}, {"$unset": {"start_urls_count": ""}})
    shown = gateway.get("/jobs", params={"user_id": user}).json()["jobs"][0]
    assert (shown["start_urls_count"], len(shown["start_urls"])) == (1000, 10)
    assert (shown["spider_job_id"], shown["node"]) == (f"{shown['job_id']}-3", "n1")
    letter = gateway.get("/dead-letters", params={"user_id": user}).json()["dead_letters"][0]
    assert (letter["attempts"], len(letter["start_urls"])) == (2, 10)


class Answered(monitoring.CommandListener):
    """Counts the bytes of the documents in MongoDB's answers."""

    size = 0

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        self.size += len(bson.encode(event.reply))


@contextmanager
def connected(database: Database[dict[str, Any]], listener: Answered) -> Iterator[Database[dict[str, Any]]]:
    host, port = database.client.address or ("", 0)
    with MongoClient[dict[str, Any]](host, port, tz_aware=True, event_listeners=[listener]) as client:
        yield client[database.name]
