"""Functions stay small enough to be read in one go. How long a file is, its subject decides."""

from __future__ import annotations

import statistics
from functools import cache

from unit.house.sources import PACKAGES, functions, python_files

MAX_FUNCTION_LINES = 40
MAX_MEDIAN_LINES = 8

#: `file function` → why it may be longer.
LONG_FUNCTIONS: dict[str, str] = {}


@cache
def lengths() -> list[tuple[str, int]]:
    """`file function` and lines of each. To parse all files takes two seconds."""
    every = (function for path in python_files() for function in functions(path))
    return [(f"{function.file} {function.name}", function.lines) for function in every]


def test_no_function_is_longer_than_it_may_be() -> None:
    too_long = [
        f"{function}: {lines} lines"
        for function, lines in lengths()
        if lines > MAX_FUNCTION_LINES and function not in LONG_FUNCTIONS
    ]
    assert not too_long


def test_most_functions_are_a_few_lines() -> None:
    packages = tuple(f"{package}/" for package in PACKAGES)
    assert statistics.median(lines for name, lines in lengths() if name.startswith(packages)) <= MAX_MEDIAN_LINES


def test_no_exception_has_outlived_its_reason() -> None:
    long_functions = {function for function, lines in lengths() if lines > MAX_FUNCTION_LINES}
    assert set(LONG_FUNCTIONS) <= long_functions
