"""From a line of `items.jsonl` to what MongoDB can hold. No line is ever dropped."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import bson
from bson.errors import BSONError

from gateway.domain.node_files import AttemptId
from gateway.storage.items import Item

#: Largest item, in bytes, both as JSON and as BSON; MongoDB itself takes 16 MiB.
MAX_ITEM = 15_000_000
#: MongoDB takes 100 levels, of which the document around the item is one.
MAX_DEPTH = 90
#: Bytes of an item that is too large that are kept to tell it by.
HEAD = 1000


def parse_item(attempt_id: AttemptId, end: int, line: bytes) -> Item:
    """The item on `line`, which ends at byte `end`: its data, or its text where BSON cannot hold the data."""
    if len(line) > MAX_ITEM:
        return too_large(attempt_id, end, len(line), line)
    data = _storable(line)
    if data is not None:
        return Item(*attempt_id, end, data)
    text = line.decode("utf-8", "replace")
    if len(text) * 3 > MAX_ITEM and len(text.encode()) > MAX_ITEM:
        # each byte that is no UTF-8 has become three
        return too_large(attempt_id, end, len(line), line)
    return Item(*attempt_id, end, None, text)


def as_text(item: Item) -> Item:
    """`item` for a server that refuses what BSON itself would hold."""
    text = json.dumps(item.data, ensure_ascii=False, separators=(",", ":"))
    return item._replace(data=None, raw=text)


def too_large(attempt_id: AttemptId, end: int, size: int, head: bytes) -> Item:
    """What stands in MongoDB for an item that does not fit: how large it was, and how it began."""
    text = head[:HEAD].decode("utf-8", "replace")
    return Item(*attempt_id, end, {"error": "this item is too large to be stored", "bytes": size, "begin": text})


def _storable(line: bytes) -> dict[str, Any] | None:
    """The JSON object on `line`, or `None` if it is something else or cannot go into BSON unchanged."""
    try:
        # not orjson: it turns integers beyond 64 bits into floats
        data = json.loads(line, parse_constant=_refuse, parse_float=_finite)
        if not isinstance(data, dict) or not _has_portable_keys(data, 0):
            return None
        return data if len(bson.encode({"data": data})) <= MAX_ITEM else None
    except (ValueError, OverflowError, RecursionError, BSONError):
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is no double")
    return number


def _has_portable_keys(value: object, depth: int) -> bool:
    """Whether every MongoDB takes these keys: dots and a leading `$` mean something else in queries."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, dict):
        return all(
            not key.startswith("$") and "." not in key and "\0" not in key and _has_portable_keys(inner, depth + 1)
            for key, inner in value.items()
        )
    if isinstance(value, list):
        return all(_has_portable_keys(inner, depth + 1) for inner in value)
    return True
