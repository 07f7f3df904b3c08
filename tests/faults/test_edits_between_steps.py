"""An edit between every two steps of a firing: nothing old runs after it, no occurrence is blocked or lost."""

from __future__ import annotations

import functools
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
from fault_table import record
from firing import GAP, LATE, START, Died, Party, Scene, order, scene
from forms import first_in_short, full_or_short
from jobs import make_job
from stores import embedded_mongo

from gateway.errors import ScheduleEndedError, ScheduleNotFoundError
from gateway.jobs.job import Job, occurrence_id
from gateway.schedules.next_run import preview
from gateway.schedules.schedule import LedgerKind, Overlap, Schedule, ScheduleState, Timing

HALF = timedelta(minutes=30)
#: A tick has fewer steps by far.
ENDLESS = 400
#: Of the thousands of ways in which two beats and an edit can go between each other's steps.
SAMPLES = full_or_short(80, 5)
#: A request or a firing comes between any two steps; in short between every eighth two, others for each test.
EVERY = full_or_short(1, 8)
STEPS = 44


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with embedded_mongo(tmp_path_factory.mktemp("mongo")) as uri, scene(uri) as stage:
        yield stage


class Answer:
    """A request in the midst of a firing, and which jobs were on their way when it was answered."""

    def __init__(self, gateway: Party, schedule: Schedule, request: str) -> None:
        self._gateway, self._schedule, self._request = gateway, schedule, request
        self.before: dict[str, int] = {}
        self.answered = False

    def ask(self) -> None:
        edits, schedule = self._gateway.edits, self._schedule
        requests: dict[str, Callable[[], object]] = {
            "edit": lambda: edits.edit(schedule.id, {"crawl": order(2)}),
            "retime": lambda: edits.edit(schedule.id, {"crawl": order(2), "timing": _half_hourly(schedule.timing)}),
            "postpone": lambda: edits.edit(schedule.id, {"crawl": order(2), "timing": _moved(schedule.timing)}),
            "pause": lambda: edits.pause(schedule.id),
            "pause and resume": lambda: (edits.pause(schedule.id), edits.resume(schedule.id)),
            "end": lambda: edits.cancel(schedule.id),
            "delete": lambda: edits.delete(schedule.id),
        }
        requests[self._request]()
        self.before = self._gateway.free(schedule.id)
        self.answered = True


def _half_hourly(timing: Timing) -> Timing:
    return timing.model_copy(update={"interval": "every 30m"})


def _moved(timing: Timing) -> Timing:
    """The same occurrences, due at other times: the one that is being fired may have its time ahead again."""
    return timing.model_copy(update={"jitter": 0.5})


def check(stage: Scene, schedule: Schedule, request: str, before: dict[str, int]) -> None:
    """After the firing, the answer and the recovery."""
    gateway = stage.gateway
    jobs, free = gateway.jobs(schedule.id), gateway.free(schedule.id)
    assert len(free) == len(jobs), "a job is held for ever"
    assert all(content == 2 or job_id in before for job_id, content in free.items()), "an old revision ran"
    assert schedule.next_at is not None
    own = occurrence_id(schedule.id, schedule.next_at)
    assert set(free) <= {own}
    if request == "edit":
        assert set(free) == {own}, "an occurrence whose time did not change was lost"
    if request != "delete":
        check_books(stage, schedule, set(free))
    if request == "postpone":
        check_postponed(stage, schedule, has_run=own in before)
    else:
        check_goes_on(stage, schedule, request)


def check_postponed(stage: Scene, schedule: Schedule, *, has_run: bool) -> None:
    """The occurrence runs at its new time if that lies ahead and it has not run yet; and the next one after it."""
    assert schedule.next_at is not None
    occurrence, timing = schedule.next_at, _moved(schedule.timing)
    [moment] = [one for one in preview(schedule.id, timing, occurrence - GAP, 3) if one.at == occurrence]
    expected = {occurrence_id(schedule.id, occurrence)} if has_run or moment.due > occurrence + LATE else set()
    for then in (occurrence, occurrence + GAP):
        stage.now = then + HALF - timedelta(milliseconds=1)
        stage.other.scheduling.tick()
        assert stage.gateway.free(schedule.id).keys() == expected
        assert stage.gateway.schedules.get(schedule.id).runs == len(expected)
        assert len(stage.gateway.entries(schedule.id)) == len(expected)
        expected.add(occurrence_id(schedule.id, then + GAP))


def check_books(stage: Scene, schedule: Schedule, ran: set[str]) -> None:
    """The schedule and the ledger know of what ran, and of nothing else."""
    now = stage.gateway.schedules.get(schedule.id)
    fired = {entry.job_id for entry in stage.gateway.entries(schedule.id) if entry.kind is LedgerKind.FIRED}
    assert fired == ran
    assert now.runs == len(ran)
    assert now.last_job_id == next(iter(ran), None)


def check_goes_on(stage: Scene, schedule: Schedule, request: str) -> None:
    """The next occurrence runs as the answer promised."""
    edits, free = stage.gateway.edits, stage.gateway.free
    assert schedule.next_at is not None
    before = set(free(schedule.id))
    if request == "pause":
        assert stage.gateway.schedules.get(schedule.id).state is ScheduleState.PAUSED
        edits.resume(schedule.id)
    gap = HALF if request == "retime" else GAP
    stage.now = schedule.next_at + gap + timedelta(seconds=1)
    stage.other.scheduling.tick()
    ran = free(schedule.id).keys() - before
    if request in ("end", "delete"):
        assert not ran
        return
    assert ran == {occurrence_id(schedule.id, schedule.next_at + gap)}
    assert stage.gateway.schedules.get(schedule.id).next_at == schedule.next_at + 2 * gap


REQUESTS = ("edit", "retime", "postpone", "pause", "pause and resume", "end", "delete")


@pytest.mark.parametrize("request_", first_in_short(REQUESTS, 2))
@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
def test_a_request_between_any_two_steps_of_a_firing(stage: Scene, request_: str, *, dies: bool) -> None:
    for number in range((REQUESTS.index(request_) + dies) % EVERY, ENDLESS, EVERY):
        schedule = stage.schedule()
        answer = Answer(stage.gateway, schedule, request_)

        def happening(answer: Answer = answer) -> None:
            answer.ask()
            if dies:
                raise Died

        stage.beat.steps.arm(number, happening)
        with suppress(Died):
            stage.beat.scheduling.tick()
        if not stage.beat.steps.happened:
            # a tick has no more steps
            assert number > 20
            return
        stage.recover()
        check(stage, schedule, request_, answer.before)
    raise AssertionError("the tick does not come to an end")


@pytest.mark.parametrize("request_", first_in_short(REQUESTS, 2))
def test_a_firing_between_any_two_steps_of_a_request(stage: Scene, request_: str) -> None:
    """And the beat before had died in the middle, at a place that changes."""
    chance = random.Random(request_)
    for number in range(ENDLESS):
        schedule = stage.schedule()
        die_at(stage.beat, chance.randrange(40))
        answer = Answer(stage.gateway, schedule, request_)
        stage.gateway.steps.arm(number, stage.other.scheduling.tick)
        answer.ask()
        if not stage.gateway.steps.happened:
            assert number > 4
            return
        stage.recover()
        check(stage, schedule, request_, answer.before)
    raise AssertionError("the request does not come to an end")


def test_beats_requests_and_deaths_anywhere(stage: Scene) -> None:
    """One beat fires between two steps of another, requests are made between two steps of either, and either dies."""
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed: {seed}\n")  # shown where the test fails
    chance = random.Random(seed)
    end = time.monotonic() + float(os.environ.get("FAULT_SECONDS", "0")) / 4
    samples = 0
    while samples < SAMPLES or time.monotonic() < end:
        samples += 1
        schedule = stage.schedule()
        request = chance.choice(REQUESTS)
        answer = Answer(stage.gateway, schedule, request)
        stage.beat.steps.arm(chance.randrange(STEPS), stage.other.scheduling.tick)
        if chance.random() < 0.5:
            rename = functools.partial(stage.gateway.edits.edit, schedule.id, {"name": "another revision"})
            stage.beat.steps.arm(chance.randrange(STEPS), rename)
        chance.choice([stage.beat, stage.other]).steps.arm(chance.randrange(STEPS), answer.ask)
        if chance.random() < 0.5:
            chance.choice([stage.beat, stage.other]).steps.arm(chance.randrange(STEPS), die)
        with suppress(Died, ScheduleEndedError, ScheduleNotFoundError):
            stage.beat.scheduling.tick()
        for party in (stage.beat, stage.other):
            party.steps.disarm()
        if answer.answered:
            stage.recover()
            check(stage, schedule, request, answer.before)
    # each was held to exactly that
    injected = f"{samples} ways for two beats and a request to go between each other's steps, and to die there"
    record("Schedules edited while they fire", injected, lost=0, doubled=0, recovered=None)


@pytest.mark.parametrize("ends", first_in_short([pytest.param(False, id="goes on"), pytest.param(True, id="ends")]))
def test_what_one_beat_has_skipped_no_other_runs(stage: Scene, *, ends: bool) -> None:
    """Also where the run that was in its way ends just after."""
    for number in range(ENDLESS):
        schedule = stage.schedule(Overlap.SKIP)
        before = make_job(schedule_id=schedule.id)
        stage.gateway.database["jobs"].insert_one(before.to_document())

        def happening(before: Job = before) -> None:
            stage.other.scheduling.tick()
            if ends:
                stage.gateway.database["jobs"].delete_one({"_id": before.id})

        stage.beat.steps.arm(number, happening)
        stage.beat.scheduling.tick()
        if not stage.beat.steps.happened:
            return
        stage.recover()
        assert [entry.kind for entry in stage.gateway.entries(schedule.id)] == [LedgerKind.SKIPPED]
        assert {job["_id"] for job in stage.gateway.jobs(schedule.id)} <= {before.id}
    raise AssertionError("the tick does not come to an end")


def test_a_beat_may_die_between_any_two_steps_and_its_occurrence_runs_once(stage: Scene) -> None:
    for number in range(ENDLESS):
        schedule = stage.schedule()
        if not die_at(stage.beat, number):
            return
        stage.recover()
        assert schedule.next_at is not None
        ran = stage.gateway.free(schedule.id)
        assert set(ran) == {occurrence_id(schedule.id, schedule.next_at)}
        assert len(stage.gateway.jobs(schedule.id)) == 1
        check_books(stage, schedule, set(ran))
    raise AssertionError("the tick does not come to an end")


def die() -> None:
    raise Died


def die_at(beat: Party, number: int) -> bool:
    """Whether the beat's tick came to that step."""
    beat.steps.arm(number, die)
    try:
        beat.scheduling.tick()
    except Died:
        return True
    beat.steps.disarm()
    return False


def test_the_scene_is_set_as_the_tests_say(stage: Scene) -> None:
    schedule = stage.schedule()
    assert schedule.next_at is not None
    assert schedule.next_at > START
    assert [stage.beat.scheduling.tick().fired] == [[occurrence_id(schedule.id, schedule.next_at)]]
