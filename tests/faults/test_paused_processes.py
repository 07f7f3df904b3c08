"""Beats and workers that stand still past every lease, and go on: what others have done meanwhile is left alone."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import warm
from beats import Arena, Beat, arena
from breakable import Platform
from crawl_verifier import CrawlVerifier
from fault_table import record
from fired_occurrences import CRASH_POINTS, check_each_once, check_skipped, one_off, schedule, tally, wait_for
from forms import FULL, full_or_short, in_full
from nodes import own_node
from sites.gated import GatedSite
from stack import Stack, wait_until
from stores import ROOT

from gateway.clock import utc_now
from gateway.jobs.job import JobStatus
from gateway.jobs.store import JobStore
from gateway.schedules.schedule import CatchUp, Overlap
from gateway.stores.indexes import ensure_indexes

#: Seconds. What a beat holds for longer than one second others take over; what is due for longer than five is late.
PAUSE = full_or_short(8, 2)
PATIENCE = 240.0


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Arena]:
    with arena(tmp_path) as ring:
        ensure_indexes(ring.database)
        yield ring


class Pauses:
    """Lets each beat that stands still go on after a while."""

    def __init__(self, beats: list[Beat]) -> None:
        self._since: dict[Beat, float] = {}
        self._beats = beats
        self.count = 0

    def look(self) -> bool:
        """Whether all go on."""
        now = time.monotonic()
        for beat in self._beats:
            if not beat.stands_still():
                self._since.pop(beat, None)
            elif now - self._since.setdefault(beat, now) > PAUSE:
                del self._since[beat]
                self.count += 1
                beat.signal(signal.SIGCONT)
        return not self._since


@pytest.mark.timeout(int(PATIENCE) + 60)
def test_beats_that_stand_still_at_any_step_of_a_firing_fire_each_occurrence_once(ring: Arena) -> None:
    each = [schedule(ring, "every 1s", catch_up=CatchUp.ALL, jitter=jitter) for jitter in (0, 0.4, None)]
    skipped = schedule(ring, "every 1s", catch_up=CatchUp.ALL, overlap=Overlap.SKIP)
    single = one_off(ring, utc_now())
    ring.stand_still_at(*CRASH_POINTS)
    with ring.beats(3) as beats:
        pauses, deadline = Pauses(beats), time.monotonic() + PATIENCE
        while ring.not_reached() or not pauses.look():
            assert time.monotonic() < deadline, ring.not_reached()
            pauses.look()
            time.sleep(0.05)
        until, ended = utc_now(), time.monotonic()
        wait_for(ring, [*each, skipped], until)
        recovered = time.monotonic() - ended
    assert pauses.count == len(CRASH_POINTS)
    for made in each:
        check_each_once(ring, made, until)
    check_skipped(ring, skipped, until)
    assert JobStore(ring.database).get(single.id).status is JobStatus.PENDING
    injected = f"3 beats, {pauses.count} times for {PAUSE} s"
    record("Beats paused at each step of a firing", injected, recovered=recovered, **tally(ring, each, until))


#: Seconds after which the workers here ask again for a node's answer, instead of fifteen.
ATTEND_SECONDS = 3
#: Where a worker stands still with a job: when it holds what the attempt needs, when it has assigned it, and when the
#: node has taken it and nobody has noted so; in full at every write in between.
STEPS = ("holds.take.after", "jobs.assign.after", "jobs.mark_running.before")
ALL_STEPS = ("holds.take.before", "jobs.assign.before", "jobs.mark_running.after")
POINTS = (*STEPS, *(ALL_STEPS if FULL else ()))


class Worker:
    """One beside the stack's own, with little patience (`quick_attention.py`) and a crash plan of its own."""

    def __init__(self, stack: Stack, home: Path) -> None:
        self.plan = home / "plan"
        self.plan.mkdir(parents=True)
        own = {"ATTEND_SECONDS": str(ATTEND_SECONDS), "DISCOVERYBOT_CRASH_PLAN": str(self.plan)}
        env = {**stack.environment(), **own}
        command = ("--quiet", "-A", "quick_attention", "worker")
        self._log = home / "worker.log"
        self._process = warm.start("celery.__main__", *command, env=env, cwd=ROOT / "tests/support", stdout=self._log)

    def stand_still_at(self, point: str) -> None:
        fresh = self.plan.with_name(f"{point}.new")
        fresh.write_text("SIGSTOP")
        fresh.replace(self.plan / point)

    def stands_still(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-4000:]
        return psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED

    def sleep(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@in_full("each of its steps in services/test_late_workers.py")
@pytest.mark.stack
@pytest.mark.timeout(420)
def test_a_worker_that_stands_still_for_too_long_changes_nothing_any_more(platform: Platform, tmp_path: Path) -> None:
    stack = platform.stack
    with ExitStack() as ends, GatedSite() as site, CrawlVerifier(stack, site) as verifier:
        stack.kill("worker", signal.SIGSTOP)
        ends.callback(stack.kill, "worker", signal.SIGCONT)
        slow, other = (Worker(stack, tmp_path / name) for name in ("slow", "other"))
        for worker in (slow, other):
            ends.callback(worker.kill)
        waited = [overtake(verifier, site, slow, other, point) for point in POINTS]
        record(
            "Workers paused in the midst of a dispatch", f"at {len(POINTS)} steps",
            recovered=max(waited), **verifier.verdict(),
        )  # fmt: skip


def overtake(verifier: CrawlVerifier, site: GatedSite, slow: Worker, other: Worker, point: str) -> float:
    """Seconds until the job of the worker that stands still is begun by the other one."""
    site.shut()
    other.sleep()
    slow.stand_still_at(point)
    [crawl] = verifier.begin(1)
    wait_until(slow.stands_still, timeout=PATIENCE, what=f"a worker's coming to {point}")
    stopped = time.monotonic()
    other.wake()
    recovered = max(0.0, verifier.wait_for_visit([crawl], after=0) - stopped)
    job = verifier.jobs[crawl.number]
    wait_until(lambda: verifier.stack.status(job)["status"] == "running", timeout=PATIENCE, what="the job's start")
    other.sleep()
    slow.wake()
    # alone, it is done with what it was at once it does the next one, too
    [following] = verifier.begin(1)
    verifier.wait_for_visit([following], after=stopped)
    other.wake()
    assert own_node(verifier.stack)["used_slots"] == 2
    site.open()
    verifier.wait()
    return recovered
