"""The curve of an attempt, and what it says of the crawl's end."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.jobs.progress import MOST_POINTS, Estimate, Point, ProgressSeries, estimate

NOW = utc_now()


def point(second: float, **counts: int) -> Point:
    return Point(NOW + timedelta(seconds=second), **counts)


@given(st.lists(st.floats(min_value=0.1, max_value=100), min_size=1, max_size=2000))
def test_a_curve_stays_small_and_keeps_its_ends(gaps: list[float]) -> None:
    series, second = ProgressSeries(id="j:0001"), 0.0
    for number, gap in enumerate(gaps):
        second += gap
        series.add(point(second, completed_pages=number))
    series.add(point(second + 0.01, completed_pages=len(gaps)), is_last=True)
    times = [one.at for one in series.points]
    assert len(times) <= MOST_POINTS
    assert times == sorted(set(times))
    assert series.points[0].at == NOW + timedelta(seconds=gaps[0])
    assert series.points[-1].completed_pages == len(gaps)


def test_an_hour_of_progress_each_second_is_spread_evenly() -> None:
    series = ProgressSeries(id="j:0001")
    for second in range(3600):
        series.add(point(second, completed_pages=second))
    steps = [(later.at - sooner.at).total_seconds() for sooner, later in pairwise(series.points)]
    assert MOST_POINTS / 2 <= len(series.points) <= MOST_POINTS
    assert max(steps) - min(steps) <= 2


def _estimate(*points: Point, at: float, **limits: Any) -> Estimate | None:
    spec = CrawlSpec(spider="seo", start_urls=(), **{"timeout": 0, **limits})
    return estimate(list(points), spec, NOW, NOW + timedelta(seconds=at))


def test_a_queue_that_gets_shorter_says_when_it_is_empty() -> None:
    began = point(0, requested_pages=100)
    found = _estimate(began, point(10, requested_pages=100, completed_pages=18, errors_count=2), at=10)
    assert found is not None
    assert (found.queued, found.reckoned_by, found.pace.done) == (80, "queue", 2.0)
    assert (found.at - NOW).total_seconds() == 10 + 40
    # what it finds meanwhile counts: 2 a second are done, 1 is new
    slower = _estimate(began, point(10, requested_pages=110, completed_pages=20), at=10)
    assert slower is not None
    assert (slower.at - NOW).total_seconds() == 10 + 90


def test_where_nobody_can_know_there_is_no_estimate() -> None:
    began = point(0, requested_pages=10)
    grows = point(10, requested_pages=500, completed_pages=20)
    assert _estimate(began, grows, at=10) is None
    assert _estimate(began, at=10) is None
    assert _estimate(began, point(1, requested_pages=10, completed_pages=5), at=1) is None
    # it has stood still for a minute
    assert _estimate(began, point(10, requested_pages=30, completed_pages=20), at=100) is None


def test_limits_end_a_crawl_whose_queue_grows() -> None:
    grows = (point(0), point(10, requested_pages=500, completed_pages=20, items_count=10))
    by_pages = _estimate(*grows, at=10, max_pages=100, timeout=3600)
    assert by_pages is not None
    assert (by_pages.reckoned_by, (by_pages.at - NOW).total_seconds()) == ("max_pages", 10 + 40)
    by_items = _estimate(*grows, at=10, max_pages=100, max_items=20)
    assert by_items is not None
    assert (by_items.reckoned_by, (by_items.at - NOW).total_seconds()) == ("max_items", 10 + 10)
    by_time = _estimate(*grows, at=10, timeout=3600)
    assert by_time is not None
    assert (by_time.reckoned_by, (by_time.at - NOW).total_seconds()) == ("timeout", 3600)
