"""The two forms of what takes long: short in `make test`, which ends within ten minutes, and full in `make faults`.

What costs little is run as it is. Else the short form has fewer crawls, kills or seconds (`full_or_short`) or some of
many cases that are alike (`first_in_short`), or a test is left to the full form (`in_full`) because others have its
subject in short. Outside of `tests/faults`, `make faults` runs those files that import from here, and those whose
examples hypothesis makes: in full there are more of them, and others each time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

#: The tests in full, as `make faults` runs them; else each in its short form.
FULL = "FAULT_SECONDS" in os.environ

Number = TypeVar("Number", int, float)


def full_or_short(full: Number, short: Number) -> Number:
    """A number of crawls, kills or seconds: the one of `make faults`, or that of `make test`, whose machine is busy
    with other tests as well.
    """
    return full if FULL else short


def in_full(short: str) -> pytest.MarkDecorator:
    """Marks what `make faults` runs alone. `short` says what `make test` has of it."""
    return pytest.mark.full(short)


def first_in_short(cases: Sequence[Any], count: int = 1) -> list[Any]:
    """All cases of a test that takes long, for `parametrize`: the first `count` stand for all in `make test`.

    A tuple is a case of several arguments.
    """
    rest = in_full("the first cases")
    return [*cases[:count], *(_marked(case, rest) for case in cases[count:])]


def _marked(case: Any, mark: pytest.MarkDecorator) -> Any:
    if hasattr(case, "marks"):
        return case._replace(marks=(*case.marks, mark))
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark)
