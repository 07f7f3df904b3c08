"""Optional packages of a crawl: for quicker JSON, and for Redis.

The node's own Python has them. In a project's own Python they can be missing or too old. Then a crawl works without
what they give, and logs it.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, time
from enum import Enum
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, cast
from uuid import UUID

logger = logging.getLogger(__name__)

#: Each package: the first version (major, minor) that is new enough, and what a crawl lacks without it.
_WANTED: dict[str, tuple[tuple[int, int], str]] = {
    "orjson": ((3, 6), "JSON takes longer"),
    "redis": ((5, 0), "no HTTP cache, and a site's rate limit holds for this crawl alone"),
    "zstandard": ((0, 18), "no HTTP cache"),
}


def has(*packages: str) -> bool:
    """Whether all of them can be used here."""
    return all(_installed(package) >= _WANTED[package][0] for package in packages)


def look() -> None:
    """Look for all of them once, for all processes that are forked from this one."""
    for package in _WANTED:
        _installed(package)


def tell_what_is_missing() -> None:
    """Log which packages are missing or too old, if any."""
    missing = [f"{package} ({without})" for package, (_, without) in _WANTED.items() if not has(package)]
    if missing:
        logger.info("Missing in this project's Python, or too old: %s", ", ".join(missing))


@cache
def _installed(package: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in version(package).split(".")[:2]) if find_spec(package) else (-1,)
    except (ImportError, ValueError):
        return (-1,)


# --- JSON: compact, in UTF-8, without NaN

Default = Callable[[Any], Any]


def dumps(value: Any, default: Default | None = None) -> bytes:
    """`value` as JSON; `default` converts objects that JSON does not know, and its exceptions are passed on.

    Raises `TypeError`, `ValueError` or `RecursionError` for a value that contains itself, is nested too deep, or has
    a number with too many digits.
    """
    if _orjson is not None:
        # times are written in one way, whether or not orjson knows their zone
        options = _orjson.OPT_NON_STR_KEYS | _orjson.OPT_PASSTHROUGH_DATETIME
        # integers beyond 64 bits and lone surrogates are JSON, but not orjson's
        with suppress(TypeError):
            return cast("bytes", _orjson.dumps(value, default=partial(_other, default=default), option=options))
    return _dumps_plainly(value, default)


def loads(data: bytes | str) -> Any:
    """The value of a JSON text. Raises `ValueError`."""
    return json.loads(data) if _orjson is None else _orjson.loads(data)


def _dumps_plainly(value: Any, default: Default | None) -> bytes:
    text = json.dumps(_plain(value, default), separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(_plain(value, default), separators=(",", ":")).encode()


def _plain(value: Any, default: Default | None) -> Any:
    """`value` in the types of `json`, converted as orjson does: NaN is null, and keys need not be strings."""
    if value is None or isinstance(value, bool | str | int):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_key(key): _plain(inner, default) for key, inner in value.items()}
    if isinstance(value, list) or type(value) is tuple:
        return [_plain(inner, default) for inner in value]
    return _plain(_other(value, default), default)


def _other(value: Any, default: Default | None) -> Any:
    if isinstance(value, Enum):
        return value.value
    if (text := _as_text(value)) is not None:
        return text
    if is_dataclass(value) and not isinstance(value, type):
        shown = (one.name for one in fields(value) if not one.name.startswith("_"))
        return {name: getattr(value, name) for name in shown}
    if default is None:
        raise TypeError(f"{type(value).__name__} is not JSON serializable")
    return default(value)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool | int | float):
        return json.dumps(_plain(key, None))
    if isinstance(key, Enum):
        return _key(key.value)
    if (text := _as_text(key)) is not None:
        return text
    raise TypeError(f"a key must not be of type {type(key).__name__}")


def _as_text(value: Any) -> str | None:
    if isinstance(value, date | time):  # a `datetime` is a `date`
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else None


def _imported_orjson() -> Any:
    if not has("orjson"):
        return None
    try:
        import orjson  # noqa: PLC0415 - it may not be there
    except ImportError:  # built for another Python
        return None
    return orjson


_orjson = _imported_orjson()
