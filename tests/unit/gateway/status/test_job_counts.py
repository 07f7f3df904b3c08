"""How many jobs there are is told at once, however long it takes to count those that have ended."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
from stack import wait_until

from gateway.jobs.job import FINAL_STATUSES, LIVE_STATUSES, JobStatus
from gateway.jobs.queries import JobQueries
from gateway.status.facts import CHEAP, SPARING, JobCounts

LIVE = dict.fromkeys(LIVE_STATUSES, 1)


class Stored:
    """One job in each state that is not final, and in the others as many as it was asked for them. It counts
    those once it `may_count`, and that takes so many seconds.
    """

    def __init__(self, seconds: float) -> None:
        self.now, self._seconds = 0.0, seconds
        self.asked = Counter[JobStatus]()
        self.may_count = threading.Event()
        self.error: Exception | None = None

    def in_status(self, status: JobStatus) -> int:
        if status in LIVE_STATUSES:
            return 1
        assert self.may_count.wait(30)
        self.now += self._seconds / len(FINAL_STATUSES)
        self.asked[status] += 1
        if self.error:
            raise self.error
        return self.asked[status]


def counts(stored: Stored, patience: float = 30.0) -> JobCounts:
    return JobCounts(cast("JobQueries", stored), patience, lambda: stored.now)


def ended(times: int) -> dict[JobStatus, int]:
    return LIVE | dict.fromkeys(FINAL_STATUSES, times)


def test_ended_jobs_are_left_out_until_they_are_counted_and_nobody_waits_for_that() -> None:
    stored = Stored(seconds=4.0)
    told = counts(stored, patience=0.01)
    assert told.by_status() == told.by_status() == LIVE
    stored.may_count.set()
    wait_until(lambda: told.by_status() == ended(1), what="the count of ended jobs")


def test_a_count_that_takes_long_is_kept_so_that_little_time_goes_into_counting() -> None:
    stored = Stored(seconds=4.0)
    stored.may_count.set()
    told = counts(stored)
    assert told.by_status() == ended(1)
    stored.now += SPARING * 4.0 - 1.0
    assert told.by_status() == ended(1)
    stored.now += 2.0
    assert told.by_status() == ended(2)


def test_a_count_that_takes_no_time_is_never_old() -> None:
    stored = Stored(seconds=CHEAP / 2)
    stored.may_count.set()
    told = counts(stored)
    assert [told.by_status() for _ in range(3)] == [ended(times) for times in (1, 2, 3)]


def test_all_who_ask_at_once_share_a_count() -> None:
    stored = Stored(seconds=4.0)
    told = counts(stored)
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(told.by_status) for _ in range(4)]
        stored.may_count.set()
        assert [answer.result(30) for answer in answers] == [ended(1)] * 4
    assert set(stored.asked.values()) == {1}


def test_who_waits_for_a_count_hears_that_it_failed_and_later_ones_get_the_last_one() -> None:
    stored = Stored(seconds=4.0)
    stored.may_count.set()
    told = counts(stored)
    assert told.by_status() == ended(1)
    stored.now += 1000.0
    stored.error = RuntimeError("away")
    with pytest.raises(RuntimeError, match="away"):
        told.by_status()
    assert told.by_status() == ended(1)
    stored.error = None
    stored.now += 1000.0
    assert told.by_status()[JobStatus.CANCELLED] >= 2
