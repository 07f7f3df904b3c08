"""Two forms of slow tests: short in `make test`, which takes at most ten minutes, and full in `make faults`.

Cheap tests have only one form. In the short form, others have fewer crawls, kills or seconds (`full_or_short`), or
some of many similar cases (`first_in_short`). Or they run only in full (`in_full`), because other tests cover their
subject in short. Outside of `tests/faults`, `make faults` runs the files that import this module, and those with
examples of hypothesis: in full there are more examples, and different ones each time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

#: Whether tests run in full, as in `make faults`; otherwise in short.
FULL = "FAULT_SECONDS" in os.environ

Number = TypeVar("Number", int, float)


def full_or_short(full: Number, short: Number) -> Number:
    """A number of crawls, kills or seconds: `full` in `make faults`, `short` in `make test`, which also keeps the
    machine busy with other tests.
    """
    return full if FULL else short


def in_full(short: str) -> pytest.MarkDecorator:
    """Marks a test that only `make faults` runs. `short` says what `make test` runs instead."""
    return pytest.mark.full(short)


def first_in_short(cases: Sequence[Any], count: int = 1) -> list[Any]:
    """The cases of a slow test, for `parametrize`: all in full, and only the first `count` in `make test`.

    A tuple is one case with several arguments.
    """
    rest = in_full("the first cases")
    return [*cases[:count], *(_marked(case, rest) for case in cases[count:])]


def _marked(case: Any, mark: pytest.MarkDecorator) -> Any:
    if hasattr(case, "marks"):
        return case._replace(marks=(*case.marks, mark))
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark)
