"""Bar charts of runs by day: large ones on the page of a spider, small ones in lists."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import date
from typing import Any, NamedTuple

from gateway.access.keys import Caller
from gateway.console.formats import count, duration, share
from gateway.jobs.job import JobStatus
from gateway.jobs.run_days import DayTotals, RunDays, RunHistory, RunSubject, RunTotals
from gateway.stores.mongo import mongo_errors
from gateway.web.container import GatewayParts

#: A list shows the runs of this many days.
LISTED = 30
#: The parts of a bar, from the bottom: good runs come first.
_STACK = (JobStatus.FINISHED, JobStatus.PARTIAL, JobStatus.ERROR, JobStatus.CANCELLED)
#: The width of a bar with its gap, and the height of a chart; below, the same for a small chart in a list.
STEP, HEIGHT = 8, 96
SMALL_STEP, SMALL_HEIGHT = 4, 20
#: More than this share of failed runs is bad, and a success rate below the second is a warning.
_BAD, _WARN = 0.5, 0.9


class BarPart(NamedTuple):
    #: The status whose colour it has; empty if it does not stand for a status.
    status: str
    y: float
    height: float
    #: The target of its link; empty: no link.
    address: str = ""


class DayBar(NamedTuple):
    x: int
    #: The day and its figures, which are shown when the mouse points at the bar.
    title: str
    parts: list[BarPart]


class DayPicture(NamedTuple):
    words: str
    #: The value of its highest bar, in words; empty without bars.
    most: str
    width: int
    height: int
    #: The width of a bar.
    bar: int
    #: The bars; days without a figure have none.
    bars: list[DayBar]


def histories_of(
    kind: RunSubject, subjects: Collection[str], parts: GatewayParts, caller: Caller, days: int = LISTED
) -> dict[str, RunHistory]:
    """The runs that the caller may see, by subject."""
    with mongo_errors():
        return parts[RunDays].histories(kind, subjects, days, caller.user_id)


def pictures(history: RunHistory) -> list[DayPicture]:
    """All charts of the page of a spider."""
    return [
        runs_picture(history),
        _picture(history, "Success rate", lambda one: one.success, share, most=1.0, status_of=_status_of),
        _picture(history, "Duration, median", lambda one: one.median_seconds, duration),
        _picture(history, "Items", lambda one: one.items if one.ended else None, count),
        _picture(history, "Error share", lambda one: one.error_share, share),
    ]


def in_list(found: dict[str, RunHistory]) -> dict[str, Any]:
    """The context of a list's template for `spark`: the chart and the totals of each subject with runs."""
    totals = {subject: history.total for subject, history in found.items()}
    some = {subject for subject, total in totals.items() if total.ended}
    sparks = {subject: runs_picture(found[subject], SMALL_STEP, SMALL_HEIGHT) for subject in some}
    return {"sparks": sparks, "totals": totals}


def runs_picture(history: RunHistory, step: int = STEP, height: int = HEIGHT) -> DayPicture:
    """A chart of the runs that ended on each day, with failed runs on top."""
    most = max((day.totals.ended for day in history.days), default=0)
    bars = [
        DayBar(place * step, _ends(day), _stacked(day.totals, height / most, height))
        for place, day in enumerate(history.days)
        if day.totals.ended
    ]
    return DayPicture("Runs", count(most) if most else "", len(history.days) * step, height, step - 1, bars)


def _stacked(totals: RunTotals, scale: float, height: int) -> list[BarPart]:
    parts, top = [], float(height)
    for status in _STACK:
        if number := totals.runs.get(status.value, 0):
            # a minimum height, so that one failed run is visible among a thousand good ones
            tall = max(2.0, round(number * scale, 1))
            top = max(0.0, top - tall)
            parts.append(BarPart(status.value, round(top, 1), tall))
    return parts


def _ends(day: DayTotals) -> str:
    """The ends of a day in words, such as `1 June: 3 finished, 1 error`."""
    ends = ", ".join(f"{count(number)} {status}" for status, number in day.totals.runs.items())
    return f"{shown_day(day.day)}: {ends}"


def shown_day(day: date) -> str:
    """The day in words, such as `1 June`."""
    return f"{day.day} {day:%B}"


def _picture(
    history: RunHistory,
    words: str,
    figure: Callable[[RunTotals], float | None],
    written: Callable[[float | None], str],
    *,
    most: float | None = None,
    status_of: Callable[[RunTotals], str] = lambda _: "",
) -> DayPicture:
    values = [figure(day.totals) for day in history.days]
    highest = most or max((value for value in values if value is not None), default=0.0)
    bars = []
    for place, (day, value) in enumerate(zip(history.days, values, strict=True)):
        if value is not None:
            tall = bar_height(value, highest, HEIGHT)
            part = BarPart(status_of(day.totals), round(HEIGHT - tall, 1), tall)
            bars.append(DayBar(place * STEP, f"{shown_day(day.day)}: {written(value)}", [part]))
    return DayPicture(words, written(highest) if bars else "", len(values) * STEP, HEIGHT, STEP - 1, bars)


def bar_height(value: float, most: float | None, height: int) -> float:
    """The height of a bar, at least 2, so that even the smallest bar is visible and can be pointed at."""
    return max(2.0, round(height * value / (most or 1), 1))


def _status_of(totals: RunTotals) -> str:
    good, warn, bad = JobStatus.FINISHED.value, JobStatus.PARTIAL.value, JobStatus.ERROR.value
    judged = totals.ended - totals.runs.get(JobStatus.CANCELLED.value, 0)
    return bad if totals.failed > _BAD * judged else warn if (totals.success or 0.0) < _WARN else good
