"""Marks the steps of a crawl that a trace shows.

`gateway.tracing` surrounds them with spans. It is loaded only if traces are on; otherwise a step is called directly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

Params = ParamSpec("Params")
Result = TypeVar("Result")

#: A function that is called with the step and its arguments, and returns the step's result, or a coroutine of it.
Surrounding = Callable[..., Any]

_surroundings: dict[str, Surrounding] = {}


def surround(steps: Mapping[str, Surrounding]) -> None:
    """From now on call these functions instead of the steps with their names; an empty mapping undoes this."""
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
