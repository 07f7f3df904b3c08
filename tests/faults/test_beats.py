"""Three beats, killed at every step of a firing and at random, without a broker, and with wrong clocks."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from beats import Arena, Beat, arena
from fault_table import record
from fired_occurrences import (
    CRASH_POINTS,
    check_each_once,
    check_skipped,
    entries_of,
    jobs_of,
    occurrences,
    one_off,
    schedule,
    tally,
    wait_for,
)
from forms import full_or_short, in_full
from stack import wait_until

from gateway.clock import utc_now
from gateway.jobs.job import JobStatus, occurrence_id
from gateway.jobs.store import JobStore
from gateway.schedules.schedule import CatchUp, LedgerEntry, LedgerKind, Overlap, Schedule
from gateway.stores.indexes import ensure_indexes

#: Seconds of kills; `make faults` gives more.
SECONDS = float(os.environ.get("FAULT_SECONDS", "9"))
BROKER_AWAY = full_or_short(6.0, 3.0)
ONE_OFFS = full_or_short(40, 20)
#: Seconds by which clocks are turned; more than the latest run of a busy machine is late.
STEP = 30


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Arena]:
    with arena(tmp_path) as ring:
        ensure_indexes(ring.database)
        yield ring


def kill_at_random(ring: Arena, beats: list[Beat], seed: int) -> int:
    """At any moment, and again at steps where somebody has died before; how many were killed at any moment."""
    chance = random.Random(seed)
    killed = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(chance.uniform(1.0, 3.0))
        chance.choice(beats).signal(signal.SIGKILL)
        killed += 1
        # one-off jobs come to an end
        ring.die_at(chance.choice([point for point in CRASH_POINTS if "scheduled" not in point]))
    return killed


def lose_broker(ring: Arena) -> None:
    ring.broker.kill()
    time.sleep(BROKER_AWAY)
    ring.broker.start()


@pytest.mark.timeout(int(SECONDS) + 300)
def test_every_occurrence_is_fired_once_whoever_is_killed(ring: Arena) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed of the random kills: {seed}\n")  # shown where the test fails
    each = [schedule(ring, "every 1s", catch_up=CatchUp.ALL, jitter=jitter) for jitter in (0, 0.3, 0.5, None)]
    each += [schedule(ring, f"every {gap}s", catch_up=CatchUp.ALL) for gap in (2, 3)]
    zones = ("UTC", "Europe/Paris", "Australia/Lord_Howe")
    each += [schedule(ring, "* * * * *", timezone=zone, catch_up=CatchUp.ALL) for zone in zones]
    skipped = schedule(ring, "every 1s", catch_up=CatchUp.ALL, overlap=Overlap.SKIP)
    begin = utc_now()
    singles = [one_off(ring, begin + timedelta(seconds=SECONDS * n / ONE_OFFS)) for n in range(ONE_OFFS)]
    later = one_off(ring, begin + timedelta(hours=1))
    ring.die_at(*CRASH_POINTS)
    with ring.beats(3) as beats:
        outage = threading.Timer(SECONDS / 3, lose_broker, [ring])
        outage.start()
        kills = kill_at_random(ring, beats, seed)
        outage.join()
        wait_until(lambda: not ring.not_reached(), timeout=150, what="the last death")
        until, ended = utc_now(), time.monotonic()
        wait_for(ring, [*each, skipped], until)
        recovered = time.monotonic() - ended
        killed = sum(beat.killed for beat in beats)
    assert killed >= len(CRASH_POINTS) + kills // 2
    for made in each:
        check_each_once(ring, made, until)
    check_skipped(ring, skipped, until)
    for single in singles:
        assert JobStore(ring.database).get(single.id).status is JobStatus.PENDING
    assert JobStore(ring.database).get(later.id).status is JobStatus.SCHEDULED
    injected = f"{killed} SIGKILLs of 3 beats, at {len(CRASH_POINTS)} steps and at random"
    record("Beats killed at each step of a firing", injected, recovered=recovered, **tally(ring, each, until))


def test_a_beat_that_advances_before_it_inserts_loses_occurrences(ring: Arena) -> None:
    """The negative control: the tests here see a lost occurrence where there is one."""
    lost = schedule(ring, "every 1s", catch_up=CatchUp.ALL, jitter=0)
    ring.die_at("schedules.advance.after")
    with ring.beats(1, scheduler="advance_first:LosingScheduler"):
        wait_until(lambda: not ring.not_reached(), what="the death of the beat")
        until = utc_now() + timedelta(seconds=2)
        wait_for(ring, [lost], until)
    assert 0 < len(jobs_of(ring, lost, until)) < len(occurrences(lost, until))
    with pytest.raises(AssertionError):
        check_each_once(ring, lost, until)
    assert tally(ring, [lost], until)["lost"] > 0


@in_full("what is missed and made up for in services/test_scheduling.py")
def test_one_run_makes_up_for_ten_occurrences_without_any_beat(ring: Arena) -> None:
    each = {catch_up: schedule(ring, "every 1s", catch_up=catch_up, jitter=0) for catch_up in CatchUp}
    with ring.beats(2):
        wait_until(
            lambda: all(entries_of(ring, made, utc_now()) for made in each.values()), what="the first occurrences"
        )
    ended = utc_now()
    time.sleep(10.5)
    back = time.monotonic()
    with ring.beats(2):
        wait_until(
            lambda: late_ones(ring, each[CatchUp.ONE]) and late_ones(ring, each[CatchUp.NONE]), what="catching up"
        )
        recovered = time.monotonic() - back
        until = utc_now() + timedelta(seconds=1)
        wait_for(ring, each.values(), until)
    check_each_once(ring, each[CatchUp.ALL], until)
    for catch_up, kind in ((CatchUp.ONE, LedgerKind.FIRED), (CatchUp.NONE, LedgerKind.MISSED)):
        made, entries = each[catch_up], entries_of(ring, each[catch_up], until)
        # a machine that is busy may let beats fall behind once more
        late, *later = sorted((entry for entry in entries if entry.missed), key=lambda entry: entry.due)
        # of the moment when nobody was left, which the last beat's end comes after
        assert (late.kind, late.late_by_seconds >= 9, late.due <= ended + timedelta(seconds=1)) == (kind, True, True)
        # every occurrence has an entry of its own or is counted in this one, and what did not run has no job
        assert len(entries) + sum(entry.missed for entry in (late, *later)) == len(occurrences(made, until))
        fired = {entry.job_id for entry in entries if entry.kind is LedgerKind.FIRED}
        assert jobs_of(ring, made, until).keys() == fired
        assert late.missed >= (9 if catch_up is CatchUp.ONE else 4)
    found = tally(ring, [each[CatchUp.ALL]], until)
    record("All beats down for ten occurrences", "10 s, one occurrence a second", recovered=recovered, **found)


def late_ones(ring: Arena, made: Schedule) -> list[LedgerEntry]:
    """Those that stand for others."""
    return [entry for entry in entries_of(ring, made, utc_now()) if entry.missed]


class FirstSeen(threading.Thread):
    """Watches for jobs, by a clock that is right."""

    def __init__(self, ring: Arena) -> None:
        super().__init__(daemon=True)
        self._ring = ring
        self.times: dict[str, datetime] = {}
        self.enough = threading.Event()

    def run(self) -> None:
        while not self.enough.wait(0.05):
            known = list(self.times)
            for job in self._ring.database["jobs"].find({"_id": {"$nin": known}}, {"_id": 1}):
                self.times[job["_id"]] = datetime.now(UTC)


def test_wrong_clocks_move_no_run(ring: Arena) -> None:
    """Stepped to and fro, under beats that run, and under one that is started again meanwhile."""
    each = [schedule(ring, "every 1s", jitter=jitter) for jitter in (0, 0.3)]
    seen = FirstSeen(ring)
    with ring.beats(3, scheduler="wrong_clock:WrongClockScheduler") as beats:
        seen.start()
        for steps in ((STEP, -STEP, 0), (-STEP, STEP, STEP), (0, STEP, -STEP)):
            wait_until(lambda: seen.times, what="the first occurrence")
            for beat, step in zip(beats, steps, strict=True):
                beat.turn(step)
            time.sleep(1.2)
            beats[1].signal(signal.SIGKILL)
            time.sleep(1.8)
        until = utc_now()
        wait_for(ring, each, until)
    seen.enough.set()
    seen.join()
    for made in each:
        check_each_once(ring, made, until)
        delays = [
            (seen.times[occurrence_id(made.id, moment.at)] - moment.due).total_seconds()
            for moment in occurrences(made, until)
        ]
        assert min(delays) > -0.1
        assert max(delays[2:]) < 0.9 * STEP
