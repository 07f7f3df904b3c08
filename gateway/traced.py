"""Marks the steps of a crawl that a trace shows.

`gateway.tracing` surrounds them with spans. It is loaded only where traces are on; elsewhere a step is called as it
is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

Params = ParamSpec("Params")
Result = TypeVar("Result")

#: Gets the step itself, and then its arguments; returns what the step returns, or a coroutine of it.
Surrounding = Callable[..., Any]

_surroundings: dict[str, Surrounding] = {}


def surround(steps: Mapping[str, Surrounding]) -> None:
    """From now on these are called in the place of the steps of their names; without any, the steps themselves."""
    _surroundings.clear()
    _surroundings.update(steps)


def traced(step: str) -> Callable[[Callable[Params, Result]], Callable[Params, Result]]:
    """Mark a method, also an asynchronous one, as a step."""

    def decorate(method: Callable[Params, Result]) -> Callable[Params, Result]:
        @functools.wraps(method)
        def call(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            if surrounding := _surroundings.get(step):
                result: Result = surrounding(method, *args, **kwargs)
                return result
            return method(*args, **kwargs)

        return call

    return decorate
