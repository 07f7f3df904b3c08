"""Routes whose functions run in threads that all share, and ask MongoDB there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from fastapi.routing import APIRoute


class StoreRoute(APIRoute):
    """Asks once more before a call whether MongoDB is there: it may have had to wait for its thread. Such a function
    takes its `parts`.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint if iscoroutinefunction(endpoint) else _checked(endpoint), **options)


def _checked(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(endpoint)
    def checked(**values: Any) -> Any:
        values["parts"].truth.refuse_if_away()
        return endpoint(**values)

    return checked
