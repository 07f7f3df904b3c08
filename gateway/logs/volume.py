"""The volume of a log: how many lines of each level it has over time. It is stored with each chunk, so that no lines
have to be read for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

#: Possible steps between two times, in seconds. Larger steps are whole days.
_STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
#: About how many times the volume of a chunk, or a chart, has at most.
MOST = 60
#: Lines with a time in other years are not counted: a spider may write any time into its log.
_YEARS = range(1970, 3000)


class LevelLines(NamedTuple):
    """Lines of one level that were written within one step."""

    #: Seconds since the epoch, a multiple of the step.
    at: int
    level: str
    lines: int
    #: Byte offset in the attempt's log at which the first of them begins.
    start: int


class LogVolume(NamedTuple):
    """How many lines of each level were written when."""

    #: Seconds from one time to the next.
    step: int
    #: The oldest first.
    parts: list[LevelLines]


def volume_of(times: Mapping[tuple[bytes, str], tuple[int, int]], start: int) -> LogVolume:
    """The volume of a chunk that begins at `start`. `times` is as in `Survey`."""
    found = ((_seconds(second), level, *lines) for (second, level), lines in times.items())
    return coarsened([LevelLines(at, level, lines, start + at_byte) for at, level, lines, at_byte in found if at])


def coarsened(parts: Iterable[LevelLines], least: int = 1) -> LogVolume:
    """The volume with these parts added up, so that it has at most about `MOST` times, `least` seconds or
    more apart.
    """
    parts = sorted(parts)
    if not parts:
        return LogVolume(least, [])
    step = step_of(parts[-1].at - parts[0].at, least)
    sums: dict[tuple[int, str], LevelLines] = {}
    for one in parts:
        at = one.at - one.at % step
        known = sums.get((at, one.level), one._replace(at=at, lines=0))
        sums[at, one.level] = known._replace(lines=known.lines + one.lines)
    return LogVolume(step, sorted(sums.values()))


def step_of(span: int, least: int = 1) -> int:
    """The step in seconds, at least `least`, with which about `MOST` steps or fewer make up `span` seconds."""
    days = -(-span // (MOST * 86400)) * 86400
    return next((one for one in _STEPS if one >= least and span < one * MOST), max(least, days))


def _seconds(second: bytes) -> int:
    """Seconds since the epoch; 0 if this is not a valid time, such as `2027-99-99T00:00:00`."""
    try:
        at = datetime.fromisoformat(second.decode()).replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(at.timestamp()) if at.year in _YEARS else 0
