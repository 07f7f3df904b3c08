"""A key with a budget of 50 pages a day gets 50 pages, whatever its owner tries and whoever dies meanwhile.

Each of the `TRIES` is one way to get more pages. A crawl takes as many as its node was told that it may fetch. The
double of the node counts them, so the test does not depend on the platform's own figures.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from clockwork import START, Clockwork
from conftest import Platform
from jobs import make_job
from killed import killed_everywhere
from pymongo.errors import AutoReconnect
from test_submission import resubmission

from gateway.access.key_store import KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.contract.crawl import CrawlSpec
from gateway.contract.outbox import SPENT, AttemptId
from gateway.contract.reasons import Reason
from gateway.contract.records import ExitReport, Progress, SpiderInfo, SpiderReport
from gateway.errors import BudgetSpentError, ConflictError, InvalidRequestError, JobExistsError, LiveTwinError
from gateway.jobs.budgets import LEFT_OVER, Budgets
from gateway.jobs.completion import Cancellation, Pausing
from gateway.jobs.job import BudgetUse, CrawlOrder, Job, JobStatus, KeyBudget
from gateway.jobs.rerun import DeadLetters, DeadLetterStore
from gateway.projects.eggs import SpiderStore
from gateway.schedules.schedule import LedgerKind, Overlap, Schedule

BUDGET = 50
DAY = timedelta(days=1)


class Owner:
    """Somebody with a key of 50 pages a day, and a node that counts what it was told that it may fetch."""

    def __init__(self, platform: Platform, **limits: int) -> None:
        self.platform, self.jobs = platform, platform.jobs
        # begin in the morning, so that no test runs past midnight unless it means to
        platform.ahead += START - platform.clock()
        SpiderStore(platform.database).publish("n1", [SpiderInfo(project="default", name="seo")])
        self.key = self.new_key(**(limits or {"pages": BUDGET}))
        #: How many posts were read; how many pages each attempt may fetch; how many each ended attempt has fetched.
        self._seen = 0
        self._allowed: dict[str, int] = {}
        self._took: dict[str, int] = {}

    def new_key(self, **limits: int) -> str:
        keys = KeyIssue(KeyStore(self.platform.database, self.platform.clock), self.platform.clock)
        return keys.issue("ada", [Scope.CRAWL], budget=KeyBudget(**limits)).key.id

    def job(self, max_pages: int | None = None, key: str | None = None, **fields: Any) -> Job:
        spec = CrawlSpec(spider="seo", start_urls=("http://site.example/",), max_pages=max_pages)
        made = {"spec": spec, "budget": BudgetUse(key_id=key or self.key), "created_at": self.platform.clock()}
        return make_job(**{**made, **fields})

    def ask(self, max_pages: int | None = None, **fields: Any) -> Job:
        """Insert a job with the one method that every way to ask for a crawl uses. Raises `BudgetSpentError`."""
        job = self.job(max_pages, **fields)
        self.jobs.insert(job)
        return self.jobs.get(job.id)

    def run(self, *, slots: int = 60) -> None:
        """Have the node take all that waits, and fetch as much as each attempt may."""
        self.platform.heartbeat(slots=slots)
        self.platform.dispatch.fill()
        posts = [form for path, form in self.platform.double.requests if path == "/schedule.json"]
        for form in posts[self._seen :]:
            allowed = json.loads(form["spec"])["allowance"]["pages"]
            # an attempt that is posted again may fetch as much as before, and nothing on top
            assert self._allowed.setdefault(form["jobid"], allowed) == allowed
        self._seen = len(posts)

    def end(self, job: Job, *, took: int | None = None, **facts: Any) -> Job:
        """End the job's attempt. It has fetched `took` pages, or all that it was allowed."""
        job = self.jobs.get(job.id)
        name = f"{job.id}-{job.newest}"
        took = self._took[name] = min(self._allowed[name], BUDGET if took is None else took)
        progress = Progress(requested_pages=took, completed_pages=took)
        said = {
            "stats": facts.pop("stats", {f"{SPENT}pages": took}),
            "finish_reason": facts.pop("finish", "finished"),
        }
        report = SpiderReport(progress=progress, ended_at=self.platform.clock(), **said)
        described = {"attempt": job.newest, "ended_at": self.platform.clock(), "exit_code": 0, "report": report}
        exit_report = ExitReport.model_validate({**described, **facts})
        self.platform.completion.record_exit(AttemptId(job.id, job.newest), exit_report, 77)
        self.platform.completion.conclude(job.id)
        return self.jobs.get(job.id)

    def again(self, job: Job) -> None:
        """Run what waited for a backoff."""
        self.platform.database["nodes"].delete_many({})
        self.platform.ahead += timedelta(minutes=10)
        self.platform.heartbeat(slots=60)
        self.platform.reconcile()
        self.run()

    def drain(self) -> None:
        """Run and end all that there is, until nothing goes on."""
        for _ in range(12):
            self.run()
            for one in self.platform.database["jobs"].find({"status": "running"}, {"_id": 1}):
                self.end(self.jobs.get(one["_id"]))

    @property
    def fetched(self) -> int:
        """How many pages all attempts together may have requested from sites."""
        return sum(self._took.get(name, allowed) for name, allowed in self._allowed.items())

    @property
    def used(self) -> int:
        """The used pages, as the key's owner sees them."""
        budget = KeyBudget(pages=BUDGET)
        return Budgets(self.platform.database, self.platform.clock).left({self.key: budget})[self.key].used["pages"]

    def schedule(self, pages: int | None = None, **fields: Any) -> Schedule:
        """A schedule that runs every minute."""
        spec = CrawlSpec(spider="seo", start_urls=("http://site.example/",), max_pages=pages, ignore_cache=True)
        own = {"crawl": CrawlOrder(spec=spec), "budget_key": self.key, "overlap": Overlap.ALLOW, **fields}
        return self.works().schedule("every 1m", **own)

    def works(self) -> Clockwork:
        works = Clockwork(self.platform.database)
        works.now = self.platform.clock()
        return works

    def tick(self, minutes: int = 1) -> None:
        for _ in range(minutes):
            self.works().beat.tick()
            self.platform.ahead += timedelta(minutes=1)


@pytest.fixture
def owner(platform: Platform) -> Owner:
    return Owner(platform)


# --- tries


def two_crawls_after_each_other(owner: Owner) -> None:
    owner.ask(30)
    owner.ask(30)


def more_than_there_is(owner: Owner) -> None:
    owner.ask(BUDGET + 1)


def no_limit(owner: Owner) -> None:
    for _ in range(3):
        owner.ask()


def many_small_crawls(owner: Owner) -> None:
    for _ in range(60):
        owner.ask(1)


def at_once(owner: Owner, pages: int | None, times: int = 40) -> None:
    def ask(_: int) -> None:
        with suppress(BudgetSpentError):
            owner.ask(pages)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(times)))


def forty_at_once(owner: Owner) -> None:
    at_once(owner, 10)


def forty_at_once_without_a_limit(owner: Owner) -> None:
    at_once(owner, None)


def forty_at_once_that_do_not_divide_it(owner: Owner) -> None:
    at_once(owner, 7)


def the_same_job_by_many_gateways(owner: Owner) -> None:
    """Several processes insert the same job, as when requests with the same dedupe key come at once."""
    job = owner.job(40)

    def insert(_: int) -> None:
        with suppress(ConflictError, BudgetSpentError):
            owner.jobs.insert(job)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(insert, range(16)))
    owner.ask(11)


def attempts_that_crash_without_a_report(owner: Owner) -> None:
    job = owner.ask(30, max_retries=10)
    for _ in range(3):
        owner.run()
        if owner.jobs.get(job.id).status is JobStatus.RUNNING:
            owner.end(job, report=None, exit_code=1, log_tail="boom")
        owner.again(job)


def attempts_that_fail_with_a_report(owner: Owner) -> None:
    job = owner.ask(max_retries=10)
    for _ in range(6):
        owner.run()
        if owner.jobs.get(job.id).status is JobStatus.RUNNING:
            owner.end(job, took=20, exit_code=1)
        owner.again(job)


def attempts_whose_node_is_shut_down(owner: Owner) -> None:
    """An attempt that ends because its node is shut down costs no retry."""
    job = owner.ask(max_retries=0)
    for took in (20, 20, 20, 20):
        owner.run()
        if owner.jobs.get(job.id).status is JobStatus.RUNNING:
            owner.end(job, took=took, stopped_by="shutdown", can_go_on=True)
        owner.again(job)


def attempts_that_were_never_started(owner: Owner) -> None:
    job = owner.ask(max_retries=0)
    for _ in range(3):
        owner.run()
        owner.end(job, took=0, report=None, exit_code=None, refused="stale")
        owner.again(job)


def an_attempt_that_is_lost_and_comes_back(owner: Owner) -> None:
    job = owner.ask(max_retries=5)
    owner.run()
    owner.end(job, report=None, exit_code=None, lost=True)
    owner.again(job)
    with suppress(AssertionError):
        owner.end(job, took=1)


def pauses(owner: Owner) -> None:
    pausing = Pausing(jobs=owner.jobs, completion=owner.platform.completion, waker=owner.platform)
    job = owner.ask()
    for _ in range(6):
        owner.run()
        if owner.jobs.get(job.id).status is JobStatus.RUNNING:
            pausing.pause(job.id, begin_anew=True)
            owner.end(job, took=20, stopped_by="pause", finish="shutdown")
            pausing.resume(job.id)


def pauses_that_kill(owner: Owner) -> None:
    pausing = Pausing(jobs=owner.jobs, completion=owner.platform.completion, waker=owner.platform)
    job = owner.ask(30)
    for _ in range(3):
        owner.run()
        if owner.jobs.get(job.id).status is JobStatus.RUNNING:
            pausing.pause(job.id, begin_anew=True)
            owner.end(job, report=None, exit_code=None, signal=9, stopped_by="pause")
            pausing.resume(job.id)


def cancelling(owner: Owner, **facts: Any) -> None:
    cancellation = Cancellation(jobs=owner.jobs, completion=owner.platform.completion, waker=owner.platform)
    for _ in range(4):
        job = owner.ask()
        owner.run()
        cancellation.cancel(job.id)
        owner.end(job, stopped_by="cancel", **facts)


def cancelling_what_runs(owner: Owner) -> None:
    cancelling(owner)


def cancelling_what_is_killed_then(owner: Owner) -> None:
    cancelling(owner, report=None, exit_code=None, signal=9)


def cancelling_what_waits(owner: Owner) -> None:
    cancellation = Cancellation(jobs=owner.jobs, completion=owner.platform.completion, waker=owner.platform)
    for _ in range(4):
        cancellation.cancel(owner.ask().id)
    assert owner.used == 0
    owner.ask()
    owner.ask()


def running_it_again(owner: Owner) -> None:
    again = resubmission(owner.platform)
    job = owner.ask(20)
    for _ in range(5):
        owner.drain()
        job = again.run_again(job.id, budget_key=owner.key)


def requeueing_a_dead_letter(owner: Owner) -> None:
    letters = DeadLetterStore(owner.platform.database, owner.platform.clock)
    dead = DeadLetters(jobs=owner.jobs, letters=letters, resubmission=resubmission(owner.platform))
    job = owner.ask(20, max_retries=0)
    for _ in range(4):
        owner.again(job)
        owner.end(job, report=None, exit_code=1)
        job = dead.requeue(job.id, budget_key=owner.key)


def a_schedule(owner: Owner) -> None:
    owner.schedule()
    for _ in range(5):
        owner.tick()
        owner.drain()


def a_schedule_of_small_crawls(owner: Owner) -> None:
    owner.schedule(8)
    owner.tick(20)


def many_schedules_at_the_same_moment(owner: Owner) -> None:
    for _ in range(10):
        owner.schedule(30)
    owner.tick()


def many_beats(owner: Owner) -> None:
    for _ in range(3):
        owner.schedule(20)
    beats = [owner.works().beat for _ in range(6)]
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda beat: beat.tick(), beats))


def runs_by_hand(owner: Owner) -> None:
    schedule = owner.schedule(20, budget_key=None)
    for _ in range(5):
        owner.works().edits.run_now(schedule.id, owner.key)


def an_edit_of_a_schedule_without_a_budget(owner: Owner) -> None:
    schedule = owner.schedule(20, budget_key=None)
    owner.works().edits.edit(schedule.id, {"name": "mine", "budget_key": owner.key})
    owner.tick(6)


def an_edit_between_the_steps_of_a_beat(owner: Owner) -> None:
    schedule = owner.schedule(20, budget_key=None)
    works = owner.works()
    held = works.insert_occurrence(schedule)
    works.edits.edit(schedule.id, {"name": "mine", "budget_key": owner.key})
    owner.tick(6)
    assert owner.jobs.get(held.id).budget


def resuming_a_schedule_without_a_budget(owner: Owner) -> None:
    schedule = owner.schedule(20, budget_key=None)
    edits = owner.works().edits
    edits.pause(schedule.id)
    edits.resume(schedule.id, owner.key)
    owner.platform.ahead += timedelta(minutes=2)
    owner.tick(6)


def crawls_for_later(owner: Owner) -> None:
    later = owner.platform.clock() + timedelta(minutes=1)
    for _ in range(3):
        owner.ask(30, status=JobStatus.SCHEDULED, not_before=later)
    owner.platform.ahead += timedelta(minutes=2)
    owner.tick()
    owner.drain()
    owner.ask(21)


def a_crawl_for_later_and_one_for_now(owner: Owner) -> None:
    owner.ask(30, status=JobStatus.SCHEDULED, not_before=owner.platform.clock() + timedelta(minutes=1))
    owner.ask()
    owner.platform.ahead += timedelta(minutes=2)
    owner.tick()


def a_twin_that_lives(owner: Owner) -> None:
    """While its twin lives, a job is not inserted, and what was reserved for it is given back once."""
    job = owner.ask(10, live_key="same")
    for _ in range(6):
        with suppress(LiveTwinError):
            owner.jobs.insert(owner.job(10, live_key="same"))
    assert owner.used == 10
    owner.run()
    owner.end(job)
    owner.ask(41)


def a_gateway_that_dies_between_the_reservation_and_the_job(owner: Owner) -> None:
    """The job is inserted long after, as by a process that was frozen, when another job has the pages already."""
    frozen = owner.jobs.budgets.reserve(owner.job(50))
    owner.platform.ahead += 2 * LEFT_OVER
    owner.ask(50)
    owner.jobs._insert(frozen)


def a_job_that_is_inserted_while_its_reservation_is_given_back(owner: Owner) -> None:
    job = owner.jobs.budgets.reserve(owner.job(50))
    owner.jobs.budgets._give_back_unless_there(job)
    owner.jobs._insert(job)
    owner.ask(50)


def a_worker_that_dies_before_the_give_back(owner: Owner) -> None:
    def killed(job: Job) -> None:
        raise AutoReconnect(job.id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner.jobs.budgets, "close", killed)
        job = owner.ask()
        owner.run()
        with suppress(AutoReconnect):
            owner.end(job, took=20)
    for _ in range(3):
        owner.platform.ahead += timedelta(minutes=1)
        owner.platform.reconcile()
    assert owner.used == 20
    owner.ask(31)


def ends_that_are_settled_twice(owner: Owner) -> None:
    job = owner.ask(40)
    owner.run()
    ended = owner.end(job, took=10)
    for _ in range(3):
        owner.jobs.budgets.close(ended)
    assert owner.used == 10
    owner.ask(41)


def a_report_that_lies(owner: Owner) -> None:
    for said in (-(10**6), True, "0", 0.5):
        job = owner.ask()
        owner.run()
        owner.end(job, stats={f"{SPENT}pages": said})


def a_report_without_its_stats(owner: Owner) -> None:
    job = owner.ask(30)
    owner.run()
    owner.end(job, stats={})
    owner.ask(30)


def posts_whose_answers_are_lost(owner: Owner) -> None:
    job = owner.ask(30, max_retries=5)
    owner.platform.double.mode = "lost"
    owner.run()
    owner.platform.double.mode = "ok"
    owner.platform.ahead += timedelta(seconds=20)
    owner.run()
    assert owner.jobs.get(job.id).attempt == 1
    owner.ask(30)


def removing_what_has_ended(owner: Owner) -> None:
    for _ in range(4):
        job = owner.ask(20)
        owner.drain()
        assert owner.jobs.delete(job.id) == 1


def a_key_that_is_revoked(owner: Owner) -> None:
    owner.schedule(30)
    owner.tick()
    KeyStore(owner.platform.database, owner.platform.clock).revoke(owner.key)
    owner.tick(5)
    owner.ask(1)


def pages_of_many_start_urls(owner: Owner) -> None:
    urls = tuple(f"http://site{number}.example/" for number in range(200))
    owner.ask(spec=CrawlSpec(spider="seo", start_urls=urls))
    owner.ask(spec=CrawlSpec(spider="seo", start_urls=urls, max_pages=200))


def a_fresh_run_of_the_same_crawl(owner: Owner) -> None:
    for _ in range(4):
        owner.jobs.insert(owner.job(20, live_key="same"), overtaking=True)


TRIES: list[Callable[[Owner], None]] = [
    two_crawls_after_each_other,
    more_than_there_is,
    no_limit,
    many_small_crawls,
    forty_at_once,
    forty_at_once_without_a_limit,
    forty_at_once_that_do_not_divide_it,
    the_same_job_by_many_gateways,
    attempts_that_crash_without_a_report,
    attempts_that_fail_with_a_report,
    attempts_whose_node_is_shut_down,
    attempts_that_were_never_started,
    an_attempt_that_is_lost_and_comes_back,
    pauses,
    pauses_that_kill,
    cancelling_what_runs,
    cancelling_what_is_killed_then,
    cancelling_what_waits,
    running_it_again,
    requeueing_a_dead_letter,
    a_schedule,
    a_schedule_of_small_crawls,
    many_schedules_at_the_same_moment,
    many_beats,
    runs_by_hand,
    an_edit_of_a_schedule_without_a_budget,
    an_edit_between_the_steps_of_a_beat,
    resuming_a_schedule_without_a_budget,
    crawls_for_later,
    a_crawl_for_later_and_one_for_now,
    a_twin_that_lives,
    a_gateway_that_dies_between_the_reservation_and_the_job,
    a_job_that_is_inserted_while_its_reservation_is_given_back,
    a_worker_that_dies_before_the_give_back,
    ends_that_are_settled_twice,
    a_report_that_lies,
    a_report_without_its_stats,
    posts_whose_answers_are_lost,
    removing_what_has_ended,
    a_key_that_is_revoked,
    pages_of_many_start_urls,
    a_fresh_run_of_the_same_crawl,
]


@pytest.mark.parametrize("attempt", TRIES, ids=lambda attempt: attempt.__name__)
def test_no_way_leads_to_more_than_the_budget(owner: Owner, attempt: Callable[[Owner], None]) -> None:
    with suppress(BudgetSpentError):
        attempt(owner)
    owner.drain()
    assert owner.fetched <= BUDGET
    assert owner.fetched <= owner.used <= BUDGET
    # more than what is left cannot be had
    with pytest.raises(BudgetSpentError) as refused:
        owner.ask(BUDGET - owner.used + 1)
    assert 0 < refused.value.retry_after <= DAY.total_seconds()


# --- and nothing less


def test_all_of_it_can_be_had(owner: Owner) -> None:
    for _ in range(5):
        owner.ask(10)
    owner.drain()
    assert (owner.fetched, owner.used) == (BUDGET, BUDGET)


def test_what_a_crawl_does_not_take_comes_back_at_its_end(owner: Owner) -> None:
    job = owner.ask()
    with pytest.raises(BudgetSpentError, match="hold 50 and give back") as refused:
        owner.ask(1)
    # another crawl may end long before midnight
    assert refused.value.retry_after <= LEFT_OVER.total_seconds()
    owner.run()
    owner.end(job, took=3)
    assert owner.used == 3
    owner.ask(47)


def test_a_reservation_without_a_job_does_not_eat_the_day(owner: Owner) -> None:
    """A gateway that was killed before it inserted the job leaves such a reservation."""
    owner.jobs.budgets.reserve(owner.job())
    with pytest.raises(BudgetSpentError):
        owner.ask(1)
    owner.platform.ahead += LEFT_OVER + timedelta(seconds=1)
    assert owner.ask(BUDGET).budget


def test_an_insertion_that_fails_gives_back_at_once(owner: Owner) -> None:
    owner.jobs.insert(owner.job(10, live_key="same"))
    with pytest.raises(LiveTwinError):
        owner.jobs.insert(owner.job(40, live_key="same"))
    assert owner.used == 10


def test_an_insertion_whose_answer_is_lost_keeps_its_reservation(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert, job = owner.jobs._insert, owner.job(10)

    def lost(admitted: Job) -> None:
        insert(admitted)
        raise AutoReconnect("the answer is lost")

    monkeypatch.setattr(owner.jobs, "_insert", lost)
    with pytest.raises(AutoReconnect):
        owner.jobs.insert(job)
    assert (owner.used, owner.jobs.get(job.id).budget is not None) == (10, True)


def test_a_retry_goes_on_with_what_its_attempts_have_left(owner: Owner) -> None:
    job = owner.ask(50, max_retries=3)
    for took in (30, 15, 5):
        owner.run()
        owner.end(job, took=took, exit_code=1)
        owner.again(job)
    assert list(owner._allowed.values()) == [50, 20, 5]
    ended = owner.jobs.get(job.id)
    assert (ended.status, ended.reason) == (JobStatus.ERROR, Reason.BUDGET_SPENT)


def test_midnight_gives_a_new_day_and_takes_nothing_of_it_for_the_day_before(owner: Owner) -> None:
    owner.platform.ahead += START.replace(hour=23, minute=59) - owner.platform.clock()
    old = owner.ask(30)
    owner.run()
    with pytest.raises(BudgetSpentError) as refused:
        owner.ask(21, key=owner.key)
    assert refused.value.retry_after <= LEFT_OVER.total_seconds()
    owner.platform.ahead += timedelta(minutes=2)
    assert owner.used == 0
    new = owner.ask(50)
    # what the old job gives back goes to the day before
    owner.end(old, took=1)
    assert owner.used == 50
    with pytest.raises(BudgetSpentError):
        owner.ask(1)
    owner.run()
    owner.end(new)
    assert owner.fetched == 1 + 50


def test_two_gateways_that_insert_one_job_around_midnight_reserve_for_it_on_one_day(owner: Owner) -> None:
    job = owner.job(50)
    owner.jobs.insert(job)
    owner.platform.ahead += DAY
    with pytest.raises(JobExistsError):
        owner.jobs.insert(job)
    assert owner.used == 0
    # a gateway that is killed at this point leaves only the reservation
    owner.jobs.budgets.reserve(job)
    owner.platform.ahead += 2 * LEFT_OVER
    assert owner.ask(50).budget


def test_a_clock_that_is_turned_back_gives_no_second_day(owner: Owner) -> None:
    owner.ask(50)
    for turn in (1, -1):
        owner.platform.turned += turn * DAY
        if turn < 0:
            with pytest.raises(BudgetSpentError):
                owner.ask(1)
        else:
            owner.ask(50)


def test_keys_of_one_user_have_a_budget_each(owner: Owner) -> None:
    other = owner.new_key(pages=5)
    owner.ask(50)
    owner.ask(5, key=other)
    for key in (owner.key, other):
        with pytest.raises(BudgetSpentError):
            owner.ask(1, key=key)


def test_an_occurrence_that_finds_nothing_left_is_skipped_and_the_ledger_says_why(owner: Owner) -> None:
    schedule = owner.schedule(30)
    owner.tick(2)
    entries, _ = owner.works().ledger.page(schedule.id, 10)
    skipped = [one for one in entries if one.kind is LedgerKind.SKIPPED]
    assert skipped
    assert all((one.reason or "").startswith("budget_spent: the key's budget of 50 pages") for one in skipped)


def test_minutes_become_the_time_limit(platform: Platform) -> None:
    owner = Owner(platform, minutes=10)
    job = owner.ask()
    platform.heartbeat(slots=9)
    platform.dispatch.fill()
    (spec,) = (json.loads(form["spec"]) for path, form in platform.double.requests if path == "/schedule.json")
    assert (spec["timeout"], spec["allowance"]) == (600, {})
    began = platform.clock()
    platform.ahead += timedelta(minutes=4)
    owner._allowed[f"{job.id}-1"] = 0
    owner.end(job, started_at=began)
    budgets = Budgets(platform.database, platform.clock)
    used = budgets.left({owner.key: KeyBudget(minutes=10)})[owner.key].used["seconds"]
    assert 240 <= used <= 242


@pytest.mark.parametrize("limits", [{"hosts": 3}, {"bytes": 3}])
def test_a_browser_is_refused_where_it_cannot_be_counted(platform: Platform, limits: dict[str, int]) -> None:
    owner = Owner(platform, **limits)
    spec = CrawlSpec(spider="seo", start_urls=("http://site.example/",), params={"render": True})
    with pytest.raises(InvalidRequestError, match="render"):
        owner.ask(spec=spec)


def test_a_node_that_knows_no_budgets_gets_no_such_crawl(owner: Owner) -> None:
    job = owner.ask(1)
    since = owner.platform.clock() - timedelta(hours=1)
    known: Any = {"alive": (), "present": (), "beating_since": since, "protocols": {1, 2}}
    owner.platform.nodes.heartbeat("n1", url=owner.platform.double.url, max_slots=2, **known)
    owner.platform.dispatch.fill()
    assert (owner.jobs.get(job.id).status, owner.platform.double.posted) == (JobStatus.PENDING, [])


#: A user's gateway or worker is killed at each of its writes. The user asks again, two minutes later each time.
STORY = """
from datetime import UTC, datetime, timedelta
from gateway.contract.records import ExitReport
from gateway.errors import BudgetSpentError
from gateway.jobs.job import Attempt, BudgetUse, JobStatus
from gateway.jobs.outcome import Outcome
from gateway.contract.reasons import Reason
from gateway.jobs.store import JobStore
from gateway.stores.mongo import connect
from jobs import make_job

def tell(uri, key):
    database = connect(uri)
    told = database["told"].find_one_and_update({"_id": key}, {"$inc": {"n": 1}}, upsert=True) or {"n": 0}
    clock = lambda: datetime(2027, 6, 1, 9, tzinfo=UTC) + timedelta(minutes=2 * told["n"])
    jobs = JobStore(database, clock)
    found = database["jobs"].find_one({"settled": None}) or database["jobs"].find_one({"settled": False})
    if found is None:
        made = make_job(budget=BudgetUse(key_id=key))
        try:
            jobs.insert(made)
        except BudgetSpentError:
            # one before was killed when all was done
            return
        found = {"_id": made.id}
    job = jobs.get(found["_id"])
    if not job.attempts:
        use, allowed = jobs.budgets.allowance(job, 1)
        assert allowed == {"pages": 50}, allowed
        jobs.note_budget(job.id, use)
        exit_report = ExitReport(attempt=1, ended_at=clock(), refused=None)
        attempt = Attempt(attempt=1, node="n1", dispatched_at=clock(), exit=exit_report)
        ran = {"status": "running", "attempt": 1, "attempts": {"1": attempt.model_dump(exclude_none=True)}}
        database["jobs"].update_one({"_id": job.id}, {"$set": ran})
        job = jobs.get(job.id)
    if not job.is_final:
        job = jobs.finish(job, Outcome(JobStatus.FINISHED, Reason.COMPLETED, "done"))
    jobs.budgets.close(job)
    jobs.settle(job.id)
"""


def test_whoever_is_killed_at_whichever_write_the_day_is_neither_lost_nor_spent_twice(
    owner: Owner, mongo_uri: str, tmp_path: Path
) -> None:
    database = owner.platform.database
    uri = mongo_uri.replace("/discoverybot", f"/{database.name}")
    points = ["budgets.make", "budgets.reserve", "jobs.insert", "jobs.note_budget", "jobs.finish"]
    points += ["budgets.charge", "budgets.give_back", "jobs.settle"]
    killed_everywhere(tmp_path, points, STORY, uri, owner.key, beside=__file__)
    (day,) = database["budget_days"].find()
    ended = database["jobs"].count_documents({"settled": True})
    # the first job has used the whole budget, so the repeated requests got nothing
    assert (ended, day["used"], day["open"]) == (1, {"pages": BUDGET}, {})


def test_days_long_ago_are_forgotten(owner: Owner) -> None:
    owner.ask(1)
    budgets = Budgets(owner.platform.database, owner.platform.clock)
    assert budgets.forget(owner.platform.clock() - DAY, 10) == 0
    assert budgets.forget(owner.platform.clock() + DAY, 10) == 1


def test_an_attempt_that_is_posted_again_may_take_what_it_might_before(owner: Owner) -> None:
    """An attempt without a sign of life is posted again: it was not begun, or is slow, and has pages left."""
    job = owner.ask(30)
    owner.run()
    for _ in range(2):
        owner.platform.dispatch.post_again(owner.jobs.get(job.id))
        owner.run()
    assert len([path for path, _ in owner.platform.double.requests if path == "/schedule.json"]) == 3
    owner.end(job, took=10)
    assert owner.used == 10
