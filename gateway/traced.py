"""Marks the steps of a crawl that a trace shows.

`gateway.tracing` makes a span for each step. It is imported only if traces are on; otherwise steps are just called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

Params = ParamSpec("Params")
Result = TypeVar("Result")

#: A function that is called in place of a step: with the step and its arguments. It calls the step and returns its
#: result; for an asynchronous step, it is asynchronous, too.
Surrounding = Callable[..., Any]

_surroundings: dict[str, Surrounding] = {}


def surround(steps: Mapping[str, Surrounding]) -> None:
    """From now on, call these functions in place of the steps with their names. An empty mapping undoes this."""
    _surroundings.clear()
    _surroundings.update(steps)


def traced(step: str) -> Callable[[Callable[Params, Result]], Callable[Params, Result]]:
    """Mark a method, which may be asynchronous, as a step."""

    def decorate(method: Callable[Params, Result]) -> Callable[Params, Result]:
        @functools.wraps(method)
        def call(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            if surrounding := _surroundings.get(step):
                result: Result = surrounding(method, *args, **kwargs)
                return result
            return method(*args, **kwargs)

        return call

    return decorate
