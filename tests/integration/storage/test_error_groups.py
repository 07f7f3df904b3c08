"""Groups of errors: each run once, in whatever order; since when, until when, and back again."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ended_runs import ended_runs, error_groups
from jobs import make_job
from pymongo.database import Database

from gateway.contract.error_fingerprint import MOST_GROUPS
from gateway.contract.error_fingerprint import group as new_group
from gateway.contract.outbox import AttemptId
from gateway.contract.reasons import Reason
from gateway.contract.records import SpiderReport
from gateway.error_groups import store as groups_store
from gateway.error_groups.attempt_errors import MOST_BYTES, AttemptErrorStore, FoundErrors, RunErrors, errors_of
from gateway.error_groups.error_group import DAYS_KEPT, RUNS_KEPT, ErrorGroup, ErrorGroupMark, ErrorGroupState, Gone
from gateway.error_groups.store import ErrorFilter, ErrorGroupStore, ErrorOrder
from gateway.errors import ErrorGroupNotFoundError, InvalidRequestError
from gateway.jobs.added_once import EndedRun
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.store import JobStore

Mongo = Database[dict[str, Any]]
NOON = datetime(2027, 6, 15, 12, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


class Runs:
    """Makes runs of a spider that have ended; the clock stands at noon."""

    def __init__(self, database: Mongo) -> None:
        self.database = database
        self.now = NOON
        self.store: ErrorGroupStore = error_groups(database, lambda: self.now)
        self.ended = ended_runs(database, lambda: self.now)
        self.errors = AttemptErrorStore(database)

    def run(self, *errors: str, ago: timedelta = timedelta(), count: int = 1, **fields: Any) -> Job:
        """Without adding it."""
        at = NOON - ago
        spec = make_job().spec.model_copy(update={"version": fields.pop("version", "1.0")})
        given = {"status": JobStatus.FINISHED, "settled": True, "live_key": None, "spec": spec}
        times = {"created_at": at - HOUR / 2, "started_at": at - HOUR / 4, "finished_at": at}
        job = make_job(**{**given, **times, **fields})
        JobStore(self.database).insert(job)
        if errors:
            self.errors.save(AttemptId(job.id, 1), RunErrors([found(text, count) for text in errors]))
        return job

    def add(self, *errors: str, **fields: Any) -> Job:
        job = self.run(*errors, **fields)
        assert not self.ended.add([job]).left
        return JobStore(self.database).get(job.id)

    @property
    def groups(self) -> dict[str, ErrorGroup]:
        return {one.message: one for one in self.store.page(ErrorFilter(), 200, None)[0]}

    def marks(self, job: Job) -> dict[str, ErrorGroupMark]:
        return {one.found.message: one.mark for one in self.store.of_run(job)[0]}


def found(text: str, count: int = 1) -> FoundErrors:
    made = new_group("exception", "ValueError", "shop/spider.py:parse", text, url="https://a.example/7")
    return FoundErrors(**made, count=count, log_start=4711)


@pytest.fixture
def runs(served: Mongo) -> Runs:
    return Runs(served)


def test_a_group_says_since_when_how_often_and_where(runs: Runs) -> None:
    first = runs.add("no price", ago=2 * DAY, count=3)
    runs.add(ago=DAY)
    last = runs.add("no price", "no stock", count=4, version="2.0")
    group = runs.groups["no price"]
    assert (group.runs, group.count, group.state) == (2, 7, ErrorGroupState.OPEN)
    assert (group.first.job_id, group.first.version, group.first.at) == (first.id, "1.0", NOON - 2 * DAY)
    assert (group.last.job_id, group.last.version, group.last_seen_at) == (last.id, "2.0", NOON)
    assert {day: (one.runs, one.count) for day, one in group.days.items()} == {
        "2027-06-13": (1, 3),
        "2027-06-15": (1, 4),
    }
    assert (group.example.job_id, group.example.attempt, group.example.log_start) == (last.id, 1, 4711)
    assert (group.example.text, group.example.url) == ("no price", "https://a.example/7")
    assert runs.marks(first) == {"no price": ErrorGroupMark.NEW}
    assert runs.marks(last) == {"no price": ErrorGroupMark.KNOWN, "no stock": ErrorGroupMark.NEW}
    assert (first.new_errors, last.new_errors) == (1, 1)


def test_in_whatever_order_and_however_often_runs_come_the_group_is_the_same(served: Mongo, runs: Runs) -> None:
    jobs = [runs.run("no price", ago=ago * HOUR, count=ago + 1) for ago in range(4)]
    seen = []
    for order in itertools.permutations(jobs):
        for job in order:
            assert not runs.ended.add([job]).left
            assert not runs.ended.add(jobs[:1] if job is jobs[0] else [job]).left
        (group,) = runs.groups.values()
        seen.append(group.model_dump(exclude={"rev", "applied", "last_place"}))
        served["error_groups"].delete_many({})
        served["jobs"].update_many({}, {"$unset": {"summed": ""}})
    assert all(one == seen[0] for one in seen)
    assert (seen[0]["runs"], seen[0]["count"]) == (4, 10)


@pytest.mark.parametrize("step", ["_note", "_apply", "_clear", "_note_new"])
@pytest.mark.parametrize("after", [False, True])
def test_who_dies_in_between_leaves_nothing_out_and_nothing_twice(runs: Runs, step: str, *, after: bool) -> None:
    jobs = [runs.run("no price", "no stock", ago=ago * HOUR) for ago in range(9)]
    for number in (4, 9):
        dying = error_groups(runs.database, lambda: NOON)
        write = getattr(dying, step)

        def dies(*args: Any, write: Any = write) -> None:
            if after:
                write(*args)
            raise ConnectionAbortedError

        setattr(dying, step, dies)
        with pytest.raises(ConnectionAbortedError):
            dying.add(jobs[:number])
    left, new = runs.store.add(jobs)
    assert (left, new) == (set(), {jobs[-1].id: 2})
    assert {(one.runs, one.count) for one in runs.groups.values()} == {(9, 9)}
    assert JobStore(runs.database).get(jobs[-1].id).new_errors == 2


def test_attempts_of_a_run_count_together_and_as_one_run(runs: Runs) -> None:
    job = runs.run("no price", count=2)
    runs.errors.save(AttemptId(job.id, 2), RunErrors([found("no price", 3), found("no stock")], left_out=5))
    runs.ended.add([job])
    assert {one.message: (one.runs, one.count) for one in runs.groups.values()} == {
        "no price": (1, 5),
        "no stock": (1, 1),
    }
    told, left_out = runs.store.of_run(job)
    assert ([(one.found.attempt, one.found.count) for one in told], left_out) == ([(1, 5), (2, 1)], 5)


def test_what_was_resolved_is_back_only_with_a_run_that_began_later(runs: Runs) -> None:
    runs.add("no price", ago=3 * HOUR)
    (group,) = runs.groups.values()
    runs.now = NOON - 2 * HOUR
    runs.store.change(group.id, ErrorGroupState.RESOLVED, "ada", "1.1")
    # it was under way
    during = runs.add("no price", ago=HOUR, started_at=NOON - 2 * HOUR - HOUR / 2)
    still = runs.store.get(group.id)
    assert (still.state, still.runs, still.back) == (ErrorGroupState.RESOLVED, 2, None)
    waiting = runs.run("no price", version="1.1")
    assert runs.marks(waiting) == {"no price": ErrorGroupMark.BACK}
    runs.ended.add([waiting])
    back = runs.store.get(group.id)
    assert (back.state, back.back and back.back.job_id, back.runs) == (ErrorGroupState.OPEN, waiting.id, 3)
    assert back.resolved
    assert (back.resolved.by, back.resolved.version) == ("ada", "1.1")
    marked = {job.id: runs.marks(JobStore(runs.database).get(job.id))["no price"] for job in (during, waiting)}
    assert marked == {during.id: ErrorGroupMark.KNOWN, waiting.id: ErrorGroupMark.BACK}
    assert JobStore(runs.database).get(waiting.id).new_errors == 1
    opened = runs.store.change(group.id, ErrorGroupState.OPEN, "ada", None)
    assert (opened.resolved, opened.back) == (None, None)


def test_a_run_that_is_added_while_somebody_looks_has_the_right_marks(runs: Runs) -> None:
    runs.add("no price", ago=3 * HOUR)
    (group,) = runs.groups.values()
    runs.now = NOON - 2 * HOUR
    runs.store.change(group.id, ErrorGroupState.RESOLVED, "ada", None)
    runs.now = NOON
    read_before = runs.run("no price", "no stock")
    runs.ended.add([JobStore(runs.database).get(read_before.id)])
    assert runs.marks(read_before) == {"no price": ErrorGroupMark.BACK, "no stock": ErrorGroupMark.NEW}


def test_what_is_ignored_stays_so(runs: Runs) -> None:
    runs.add("no price", ago=HOUR)
    (group,) = runs.groups.values()
    runs.store.change(group.id, ErrorGroupState.IGNORED, None, None)
    runs.now = NOON + HOUR
    later = runs.add("no price", ago=-HOUR)
    assert (runs.store.get(group.id).state, runs.store.get(group.id).runs) == (ErrorGroupState.IGNORED, 2)
    assert later.new_errors is None


def test_somebody_who_resolves_while_a_run_is_added_is_not_overruled(runs: Runs) -> None:
    runs.add("no price", ago=2 * HOUR)
    (group,) = runs.groups.values()
    later = runs.run("no price", ago=HOUR)
    read = runs.store._stored

    def resolved_meanwhile(*args: Any) -> Any:
        runs.store._stored = read  # type: ignore[method-assign]
        answer = read(*args)
        runs.store.change(group.id, ErrorGroupState.RESOLVED, "ada", None)
        return answer

    runs.store._stored = resolved_meanwhile  # type: ignore[method-assign]
    assert not runs.store.add([later])[0]
    stored = runs.store.get(group.id)
    assert (stored.state, stored.runs) == (ErrorGroupState.RESOLVED, 2)


def test_it_is_gone_since_so_many_runs_that_ended_well(runs: Runs) -> None:
    runs.add(ago=5 * DAY)
    runs.add(ago=4 * DAY + HOUR)
    runs.add("no price", ago=4 * DAY)
    runs.add(ago=4 * DAY - HOUR)
    runs.add(ago=DAY, status=JobStatus.ERROR, reason=Reason.SITE_FAILED)
    runs.add(ago=HOUR, status=JobStatus.PARTIAL)
    runs.add("no stock", ago=40 * DAY)
    runs.add("no colour")
    gone = runs.store.gone(runs.groups.values())
    assert {one.message: gone[one.id] for one in runs.groups.values() if one.kind == "exception"} == {
        "no price": Gone(3, is_least=False),
        "no stock": Gone(6, is_least=True),
        "no colour": Gone(0, is_least=False),
    }


def test_a_run_that_fails_without_an_error_of_its_own_is_grouped_by_why(runs: Runs) -> None:
    failed = {"status": JobStatus.ERROR, "reason": Reason.NOT_IMPORTABLE}
    for number in range(2):
        runs.add(ago=(2 - number) * HOUR, message=f"no module named 'shop{number}'", **failed)
    runs.add(status=JobStatus.CANCELLED, reason=Reason.CANCELLED, message="cancelled")
    (group,) = runs.groups.values()
    assert (group.kind, group.name, group.message) == ("crawl", "not_importable", "no module named <text>")
    assert (group.runs, group.example.text) == (2, "no module named 'shop1'")


def test_jobs_of_a_release_before_are_added_as_others_are(runs: Runs) -> None:
    known = runs.add("no price", ago=3 * HOUR)
    runs.run("no price", ago=2 * HOUR)
    runs.run(ago=HOUR, status=JobStatus.ERROR, reason=Reason.NO_ITEMS, message="no items")
    document = runs.database["jobs"].find_one({"_id": known.id})
    assert EndedRun.model_validate(document, extra="ignore").spec.version == "1.0"
    while ended_runs(runs.database, lambda: NOON).adopt(2):
        pass
    assert {one.name: (one.runs, one.last.version) for one in runs.groups.values()} == {
        "ValueError": (2, "1.0"),
        "no_items": (1, "1.0"),
    }


def test_users_projects_and_spiders_are_apart(runs: Runs) -> None:
    spec = make_job().spec
    for user in ("ada", "bob"):
        for changes in ({}, {"project": "shop"}, {"spider": "other"}):
            runs.add("no price", user_id=user, spec=spec.model_copy(update=changes))
    assert len(runs.store.page(ErrorFilter(), 9, None)[0]) == 6
    for wanted, number in (
        (ErrorFilter(user_id="ada"), 3),
        (ErrorFilter(project="shop"), 2),
        (ErrorFilter(user_id="bob", project="default", spider="other"), 1),
        (ErrorFilter(q="NO PR"), 6),
        (ErrorFilter(q="no.pr"), 0),
        (ErrorFilter(q="shop/spider"), 6),
        (ErrorFilter(kind="log"), 0),
        (ErrorFilter(state=ErrorGroupState.RESOLVED), 0),
        (ErrorFilter(since=NOON + HOUR), 0),
        (ErrorFilter(new_since=NOON), 6),
        (ErrorFilter(until=NOON), 0),
        (ErrorFilter(new_since=NOON, until=NOON + HOUR), 6),
    ):
        assert len(runs.store.page(wanted, 9, None)[0]) == number, wanted


def test_a_list_is_paged_in_every_order(runs: Runs) -> None:
    for number in range(7):
        runs.add(f"error {chr(97 + number)}", ago=number * HOUR, count=1 + number % 3)
    keys = {
        ErrorOrder.LAST_SEEN: lambda one: (one.last_seen_at, one.id),
        ErrorOrder.COUNT: lambda one: (one.count, one.id),
        ErrorOrder.FIRST_SEEN: lambda one: (one.first.at, one.id),
    }
    for order, key in keys.items():
        told: list[ErrorGroup] = []
        after = None
        while len(told) < 7:
            page, after = runs.store.page(ErrorFilter(), 2, after, order)
            told += page
        assert after is None
        assert told == sorted(told, key=key, reverse=order is not ErrorOrder.FIRST_SEEN)
        assert len({one.id for one in told}) == 7
        with pytest.raises(InvalidRequestError):
            runs.store.page(ErrorFilter(), 2, "nonsense", order)


@pytest.mark.parametrize("order", ErrorOrder)
def test_a_search_ends_in_time_and_goes_on(runs: Runs, monkeypatch: pytest.MonkeyPatch, order: ErrorOrder) -> None:
    for number in range(9):
        runs.add(
            f"error {chr(97 + number)}{' rare' if number in {1, 7} else ''}", ago=number * HOUR, count=9 - number
        )
    monkeypatch.setattr(groups_store, "_LOOKED_AT_ONCE", 2)
    monkeypatch.setattr(groups_store, "_SEARCH_SECONDS", -1.0)
    pages, after = list[list[str]](), None
    while not pages or after:
        page, after = runs.store.page(ErrorFilter(q="RARE"), 2, after, order)
        pages.append([one.message for one in page])
    expected = [["error b rare"], [], [], ["error h rare"], []]
    assert pages == (expected if order is not ErrorOrder.FIRST_SEEN else [*expected[-2::-1], []])
    monkeypatch.undo()
    page, after = runs.store.page(ErrorFilter(q="error"), 4, None, order)
    assert (len(page), after is None) == (4, False)


def test_a_group_does_not_grow(runs: Runs) -> None:
    jobs = [runs.run("no price", ago=ago * DAY) for ago in range(DAYS_KEPT + 20)]
    runs.store.add(jobs)
    (group,) = runs.groups.values()
    assert (len(group.days), len(group.recent), group.runs) == (DAYS_KEPT, RUNS_KEPT, DAYS_KEPT + 20)
    assert group.recent[-1].job_id == jobs[0].id
    assert len(group.applied) <= 25


def test_a_spider_has_no_more_groups_than_it_may(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_store, "MOST_OF_SPIDER", 3)
    runs.add("error a", "error b")
    full = runs.add("error a", "error c", "error d")
    assert sorted(runs.groups) == ["error a", "error b", "error c"]
    # what it counted already is no obstacle, and nothing is left to do
    assert not runs.ended.add([full]).left
    assert runs.groups["error a"].runs == 2


def test_what_is_resolved_or_quiet_gives_way_to_what_is_new(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_store, "MOST_OF_SPIDER", 4)
    runs.add("error quiet", "error ignored", ago=40 * DAY)
    runs.store.change(runs.groups["error ignored"].id, ErrorGroupState.IGNORED, None, None)
    runs.add("error resolved", "error open", ago=2 * DAY)
    runs.store.change(runs.groups["error resolved"].id, ErrorGroupState.RESOLVED, None, None)
    runs.add("error a")
    assert sorted(runs.groups) == ["error a", "error ignored", "error open", "error resolved"]
    runs.add("error b", "error c")
    assert sorted(runs.groups) == ["error a", "error b", "error ignored", "error open"]


def test_a_group_that_cannot_be_read_keeps_no_run_from_being_deleted(runs: Runs) -> None:
    runs.add("no price")
    runs.database["error_groups"].update_one({}, {"$set": {"count": "many"}})
    job = runs.run("no price", "no stock")
    assert not runs.ended.add([job]).left
    assert runs.database["error_groups"].count_documents({"runs": 1}) == 2
    # once it can be read again, the run is added after all
    runs.database["error_groups"].update_one({"count": "many"}, {"$set": {"count": 1}})
    runs.ended.add([JobStore(runs.database).get(job.id)])
    assert runs.groups["no price"].runs == 2


def test_what_no_run_has_had_for_long_is_forgotten(runs: Runs) -> None:
    runs.add("no price", ago=100 * DAY)
    kept = runs.add("no stock")
    assert [runs.store.forget(NOON - DAY, 5) for _ in range(2)] == [1, 0]
    assert list(runs.groups) == ["no stock"]
    assert runs.store.get(runs.groups["no stock"].id).first.job_id == kept.id
    for lost in (
        lambda: runs.store.get("0" * 32),
        lambda: runs.store.change("0" * 32, ErrorGroupState.OPEN, None, None),
    ):
        with pytest.raises(ErrorGroupNotFoundError):
            lost()


@pytest.mark.parametrize(
    "said",
    [
        [{}],
        [{"fingerprint": "x", "kind": "log", "count": 1}],
        [{"fingerprint": "0" * 32, "kind": "other", "count": 1}],
        [{"fingerprint": "0" * 32, "kind": "log", "count": True}],
        [{"fingerprint": "0" * 32, "kind": "log", "count": -1}],
        [{"fingerprint": {"$ne": 1}, "kind": ["log"], "count": "1"}],
    ],
)
def test_what_is_no_group_is_left_out(said: list[dict[str, Any]]) -> None:
    assert errors_of(report(said)).groups == []


def test_what_a_spider_says_of_its_errors_is_bounded() -> None:
    text = "é\x00\ud800 " * 1_000_000
    every = [
        {
            **dict.fromkeys(("name", "place", "message", "example", "url"), text),
            "fingerprint": f"{number:032x}",
            "kind": "log",
            "count": 2**70,
            # one that no float can hold, too
            "at": 2**70 if number % 2 else 10**400,
            "log_start": -1,
        }
        for number in range(10 * MOST_GROUPS)
    ]
    told = errors_of(report(every, 2**63 - 1))
    assert 0 < len(told.groups) <= MOST_GROUPS
    assert sum(one.size for one in told.groups) <= MOST_BYTES
    assert all((one.at, one.log_start) == (None, None) for one in told.groups)
    assert all(one.example.isprintable() for one in told.groups)


def report(groups: list[dict[str, Any]], left_out: int = 0) -> SpiderReport:
    facts = {"finish_reason": "finished", "progress": {}, "ended_at": NOON}
    return SpiderReport.model_validate({**facts, "error_groups": groups, "errors_left_out": left_out})
