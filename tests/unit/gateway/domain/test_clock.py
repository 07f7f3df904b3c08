from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gateway.domain.clock import SteadyClock, steady_seconds, utc_now

NOON = datetime(2027, 6, 1, 12, tzinfo=UTC)


class Stopwatch:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_a_steady_clock_goes_on_from_where_it_was_set() -> None:
    stopwatch = Stopwatch()
    clock = SteadyClock(NOON, stopwatch)
    assert clock() == NOON
    stopwatch.seconds += 90.25
    assert clock() == NOON + timedelta(seconds=90.25)


def test_it_can_be_turned_to_and_fro() -> None:
    clock = SteadyClock(NOON, Stopwatch())
    clock.turn(timedelta(seconds=-5))
    assert clock() == NOON - timedelta(seconds=5)


def test_it_shows_whole_milliseconds_as_all_our_times_do() -> None:
    stopwatch = Stopwatch()
    clock = SteadyClock(NOON, stopwatch)
    stopwatch.seconds += 0.0019
    assert clock().microsecond == 1000


def test_the_base_of_it_counts_seconds() -> None:
    clock = SteadyClock(utc_now())
    before = steady_seconds()
    assert abs(clock() - utc_now()) < timedelta(seconds=1)
    assert steady_seconds() >= before
