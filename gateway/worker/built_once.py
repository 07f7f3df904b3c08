"""Parts of a composition root that many threads ask for, each built by the first of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")

#: One for all, because building one part asks for others.
_LOCK = threading.RLock()


class built_once(Generic[Value]):  # noqa: N801 - a decorator, like functools.cached_property
    """As `cached_property`, which from Python 3.12 on lets two threads build two: two pools of connections, say."""

    def __init__(self, build: Callable[[Any], Value]) -> None:
        self._build = build

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, _owner: type | None = None) -> Value:
        with _LOCK:
            parts: dict[str, Value] = instance.__dict__
            if self._name not in parts:
                # from here on Python finds it there, without asking us
                parts[self._name] = self._build(instance)
            return parts[self._name]
