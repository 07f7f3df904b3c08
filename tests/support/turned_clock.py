"""When imported, sets the wall clock of its process wrong, by the seconds that a file contains at each moment."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

from gateway import clock

_FILE = Path(os.environ["WRONG_CLOCK"])
_right_time = time.time


def seconds_ahead() -> int:
    return int(_FILE.read_text())


def _wrong_time() -> float:
    return _right_time() + seconds_ahead()


class _WrongDatetime(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # plain datetimes, as everywhere
        return datetime.now(tz) + timedelta(seconds=seconds_ahead())


time.time = _wrong_time
clock.datetime = _WrongDatetime  # type: ignore[attr-defined]  # the only place in which the platform reads it
