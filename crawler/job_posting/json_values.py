"""Values of JSON-LD, where anything may be one or many, a text or an object with a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crawler.job_posting.plain_text import one_line

_NAMES = ("@value", "name", "value", "legalName")
MAX_NESTING = 8


def each(value: Any, depth: int = MAX_NESTING) -> Iterator[Any]:
    """The members of a list, or the value itself; nothing of what says nothing."""
    if isinstance(value, list):
        for inner in value if depth else ():
            yield from each(inner, depth - 1)
    elif value not in (None, "", {}):
        yield value


def different(value: Any) -> Iterator[Any]:
    """Those of `each` that are not the very same: one that references stand for may be there a thousand times."""
    return iter({id(one): one for one in each(value)}.values())


def texts(value: Any, names: tuple[str, ...] = _NAMES) -> Iterator[str]:
    """What it says in words, on one line; of an object the first of `names` that says something."""
    yield from _texts(value, names, MAX_NESTING, set())


def _texts(value: Any, names: tuple[str, ...], depth: int, seen: set[int]) -> Iterator[str]:
    """`seen` need not say it again: a thousand references to one may hold a thousand to another each."""
    for one in each(value):
        if isinstance(one, str):
            if text := one_line(one):
                yield text
        elif isinstance(one, int | float) and not isinstance(one, bool):
            yield str(one)
        elif isinstance(one, dict) and depth and id(one) not in seen:
            seen.add(id(one))
            found = (text for name in names for text in _texts(one.get(name), names, depth - 1, seen))
            if text := next(found, None):
                yield text


def text_of(value: Any, names: tuple[str, ...] = _NAMES) -> str | None:
    return next(texts(value, names), None)


def objects(value: Any) -> Iterator[dict[str, Any]]:
    for one in each(value):
        if isinstance(one, dict):
            yield one


def types_of(node: dict[str, Any]) -> frozenset[str]:
    """Its `@type`s in lower case, without the vocabulary's address."""
    written = (one for one in each(node.get("@type")) if isinstance(one, str))
    return frozenset(name.replace("#", "/").rsplit("/", 1)[-1].rsplit(":", 1)[-1].strip().lower() for name in written)
