from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.clock import FRESH_SECONDS, SteadyClock, from_timestamp, steady_seconds, time_of_node, to_iso, utc_now
from gateway.contract.outbox import CLOCK

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


def off(moment: datetime) -> float:
    """Seconds between it and now."""
    return abs(moment - utc_now()).total_seconds()


@pytest.mark.parametrize("age", [0.0, FRESH_SECONDS - 5])
def test_a_node_goes_by_the_time_that_its_tailer_has_written_down(tmp_path: Path, age: float) -> None:
    told = {"moment": to_iso(NOON), "steady": steady_seconds() - age}
    (tmp_path / CLOCK).write_text(json.dumps(told))
    assert abs(time_of_node(tmp_path) - NOON).total_seconds() == pytest.approx(age, abs=2)


@pytest.mark.parametrize("ahead", [FRESH_SECONDS, -FRESH_SECONDS - 1, float("nan")])
def test_by_its_own_if_that_was_long_ago_or_before_the_machine_was_started_anew(tmp_path: Path, ahead: float) -> None:
    (tmp_path / CLOCK).write_text(json.dumps({"moment": to_iso(NOON), "steady": steady_seconds() + ahead}))
    assert off(time_of_node(tmp_path)) < 2


@pytest.mark.parametrize("content", [None, "{", "[]", "1", '{"moment": 1, "steady": 0}', '{"moment": "9999-12-31"}'])
def test_and_if_there_is_nothing_of_the_kind(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / CLOCK).write_text(content)
    assert off(time_of_node(tmp_path)) < 2


def test_what_waits_for_ever_in_its_place_keeps_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / CLOCK)
    assert off(time_of_node(tmp_path)) < 2


def test_a_file_of_any_year_has_a_time_that_can_be_kept() -> None:
    assert from_timestamp(NOON.timestamp() + 0.0001) == NOON
    assert [from_timestamp(seconds).year for seconds in (-1e18, 3e11, 1e18)] == [1970, 9000, 9000]
