"""Functions stay small enough to be read in one go. How long a file is, its subject decides."""

from __future__ import annotations

import statistics

from unit.house.sources import PACKAGES, functions, python_files

MAX_FUNCTION_LINES = 40
MAX_MEDIAN_LINES = 8

#: `file function` → why it may be longer.
LONG_FUNCTIONS: dict[str, str] = {}


def test_no_function_is_longer_than_it_may_be() -> None:
    every = [function for path in python_files() for function in functions(path)]
    too_long = [
        f"{function}: {function.lines} lines"
        for function in every
        if function.lines > MAX_FUNCTION_LINES and f"{function.file} {function.name}" not in LONG_FUNCTIONS
    ]
    assert not too_long


def test_most_functions_are_a_few_lines() -> None:
    lengths = [function.lines for path in python_files(*PACKAGES) for function in functions(path)]
    assert statistics.median(lengths) <= MAX_MEDIAN_LINES


def test_no_exception_has_outlived_its_reason() -> None:
    long_functions = {
        f"{function.file} {function.name}"
        for path in python_files()
        for function in functions(path)
        if function.lines > MAX_FUNCTION_LINES
    }
    assert set(LONG_FUNCTIONS) <= long_functions
