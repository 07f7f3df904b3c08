"""Decides which items are the same item, and which have the same content.

Content is hashed in a normal form: fields are sorted by name, ignored fields are left out, and dates, numbers and
white space are written in one way. Without a normal form, a new version of Scrapy that writes dates differently would
turn every item into a changed item.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from gateway.contract.outbox import whole_text
from gateway.items.formats import MISSING, Row, as_json, value_of
from gateway.jobs.dedupe import canonical_url

#: The key field where a dataset, or a comparison of two runs, names none.
URL_FIELD = "url"
#: Bytes of a digest.
_DIGEST = 16
#: A time as `json`, `orjson`, Scrapy and `str()` write it.
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?")
#: Below this, each integer has an exact float, so 12.0 and 12 count as the same number.
_EXACT = 1 << 53
#: A URL that is in its canonical form already. Matching this is faster than `canonical_url`.
_PLAIN_URL = re.compile(r"https?://[a-z0-9][a-z0-9.-]*[a-z0-9]/[A-Za-z0-9/._~-]*(\?[A-Za-z0-9=&._~-]*)?")
#: Longer values of a key are cut to this many characters before they are shown.
_SHOWN = 1000

Key = dict[str, Any]


def key_of(row: Row, fields: Sequence[str], content: str) -> Key | None:
    """The values of the key's `fields`, in their normal form; `None` if one of them is empty. Without `fields`, the
    key is the canonical `url` of the item; for an item without a URL it is `content`, the hash of its content.
    """
    if not fields:
        url = row.get(URL_FIELD)
        return {URL_FIELD: _url(url)} if isinstance(url, str) and url.strip() else {"content": content}
    key = {name: _normal(value_of(row, name)) for name in fields}
    return None if any(value in _EMPTY for value in key.values()) else key


#: Values that count as empty. `value_of` returns `MISSING` for a row without the field.
_EMPTY: list[Any] = [MISSING, None, "", [], {}]


def _url(url: str) -> str:
    url = url.strip()
    return url if _PLAIN_URL.fullmatch(url) else canonical_url(url)


def key_hash(key: Key) -> str:
    """32 hexadecimal digits. Only the values are hashed: all keys of a dataset have the same field names."""
    return _hashed(as_json(list(key.values())))


def shown_key(key: Key) -> dict[str, Any]:
    """The key as it is stored and shown: long values are cut, and `.` and `$` in names are replaced by characters
    that every MongoDB accepts.
    """
    return {name.replace(".", "\uff0e").replace("$", "\uff04"): _cut(value) for name, value in key.items()}


def _cut(value: Any) -> Any:
    text = whole_text(value) if isinstance(value, str) else as_json(value).decode()
    if len(text) > _SHOWN:
        return text[:_SHOWN] + "…"
    return value if isinstance(value, bool | int | float) else text


def content_hash(row: Mapping[str, Any], ignore: Collection[str]) -> str:
    """32 hexadecimal digits."""
    kept = row if not ignore else _without(row, ignore)
    try:
        return _hashed(orjson.dumps(_normal(kept), option=orjson.OPT_SORT_KEYS))
    except (TypeError, RecursionError):
        # orjson refuses half a surrogate pair, and items that are nested too deeply
        return _hashed(repr(kept).encode("utf-8", "replace"))


def _without(row: Mapping[str, Any], ignore: Collection[str]) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if name not in ignore}
    for path in ignore:
        outer, _, inner = path.partition(".")
        if inner and isinstance(value := kept.get(outer), dict):
            kept[outer] = {name: one for name, one in value.items() if name != inner}
    return kept


def _normal(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return _text(value)
    if kind is float:
        return int(value) if abs(value) < _EXACT and value.is_integer() else value
    if kind is dict:
        return {_composed(name): _normal(inner) for name, inner in value.items()}
    if kind is list:
        return [_normal(inner) for inner in value]
    if isinstance(value, int) and kind is not bool and not -(1 << 63) <= value < 1 << 63:
        return str(value)
    return value


def _text(text: str) -> str:
    text = " ".join(_composed(text).split())
    return _time(text) if text[4:5] == "-" and _TIME.fullmatch(text) else text


def _composed(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _time(text: str) -> str:
    """The time in one format: in UTC if it has an offset, and without trailing zeros."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC).isoformat()
        return moment.isoformat()
    except (ValueError, OverflowError):
        return text


def _hashed(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_DIGEST).hexdigest()


# --- the differences of a changed item

#: The differences of one item are stored only if they have at most this many bytes of JSON.
MAX_DIFFERENCES = 256 << 10


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], ignore: Collection[str]
) -> list[dict[str, Any]] | None:
    """`{"field", "previous", "current"}` for each field whose normal form is different, in the order of the fields of
    `after`; `None` if the differences are larger than `MAX_DIFFERENCES`.
    """
    old, new = (_without(row, ignore) if ignore else row for row in (before, after))
    names = dict.fromkeys((*new, *old))
    found = [
        {"field": name, "previous": old.get(name), "current": new.get(name)}
        for name in names
        if _normal(old.get(name)) != _normal(new.get(name)) or (name in old) != (name in new)
    ]
    return found if len(as_json(found)) <= MAX_DIFFERENCES else None
