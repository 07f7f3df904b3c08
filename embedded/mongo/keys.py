"""The order of BSON values, in two forms: as tuples for comparisons in memory, and as bytes that SQLite compares by
memcmp.

Both follow https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/. No encoded value is a prefix of
another one, so concatenated values compare field by field. In a descending field, all bytes are inverted.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any, Final

from bson import Binary, Int64, ObjectId
from bson.datetime_ms import DatetimeMS

from embedded.mongo.errors import not_implemented
from embedded.mongo.paths import Absent

NULL: Final = 5
NUMBER: Final = 10
STRING: Final = 15
OBJECT: Final = 20
ARRAY: Final = 25
BINARY: Final = 30
OBJECT_ID: Final = 35
BOOL: Final = 40
DATE: Final = 45
_EMPTY_ARRAY: Final = 4

_RANKS: dict[type, int] = {
    NoneType: NULL,
    int: NUMBER,
    Int64: NUMBER,
    float: NUMBER,
    str: STRING,
    dict: OBJECT,
    list: ARRAY,
    bytes: BINARY,
    Binary: BINARY,
    ObjectId: OBJECT_ID,
    bool: BOOL,
    datetime: DATE,
    DatetimeMS: DATE,
}

#: A byte that sorts after any encoded value that could follow at its place, because all ranks are smaller.
AFTER: Final = b"\xff"
_INVERTED: Final = bytes(255 - byte for byte in range(256))
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - BSON dates are decoded as naive UTC
_MILLISECOND = timedelta(milliseconds=1)


def rank(value: Any) -> int:
    """The rank of the value's type in the order of types. Raises `NotImplemented` for types that are never stored."""
    found = _RANKS.get(type(value))
    if found is not None:
        return found
    if isinstance(value, Absent):
        return _EMPTY_ARRAY if value is Absent.EMPTY_ARRAY else NULL
    raise not_implemented(f"comparing values of type {type(value).__name__}")


def sort_key(value: Any) -> tuple[Any, ...]:
    """A tuple that compares in the order of BSON."""
    place = rank(value)
    comparable = _COMPARABLES.get(place)
    return (place, comparable(value)) if comparable else (place,)


def equal(one: Any, other: Any) -> bool:
    """Equality by MongoDB's rules: 1 equals 1.0, the order of fields counts, and true does not equal 1."""
    if type(one) is type(other) and isinstance(one, (str, ObjectId, bool)):
        return bool(one == other)
    return rank(one) == rank(other) and sort_key(one) == sort_key(other)


def encode(value: Any) -> bytes:
    """Bytes whose memcmp order is the order of `sort_key`."""
    place = rank(value)
    body = _BODIES.get(place)
    return bytes((place,)) + body(value) if body else bytes((place,))


def inverted(encoded: bytes) -> bytes:
    """The encoded value for a descending field."""
    return encoded.translate(_INVERTED)


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def milliseconds(value: datetime | DatetimeMS) -> int:
    """Milliseconds since the epoch, rounded down."""
    if isinstance(value, DatetimeMS):
        return int(value)
    naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return (naive - _EPOCH) // _MILLISECOND


def _text(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass").replace(b"\0", b"\0\xff") + b"\0\0"


def _number(value: float) -> bytes:
    """The bytes of the nearest double, changed so that they sort, followed by the difference between a 64-bit integer
    and this double.
    """
    if is_nan(value):
        return bytes(10)
    nearest = float(value) + 0.0  # -0.0 is 0.0
    rest = int(value) - int(nearest) if isinstance(value, int) else 0
    bits = struct.pack(">d", nearest)
    ordered = inverted(bits) if bits[0] & 0x80 else bytes((bits[0] | 0x80,)) + bits[1:]
    return ordered + struct.pack(">H", 0x8000 + rest)


def _object(value: dict[str, Any]) -> bytes:
    return b"".join(bytes((rank(item),)) + _text(name) + encode(item) for name, item in value.items()) + b"\0"


_BODIES: dict[int, Callable[[Any], bytes]] = {
    NUMBER: _number,
    STRING: _text,
    OBJECT: _object,
    ARRAY: lambda value: b"".join(map(encode, value)) + b"\0",
    BINARY: lambda value: struct.pack(">IB", len(value), getattr(value, "subtype", 0)) + bytes(value),
    OBJECT_ID: lambda value: value.binary,
    BOOL: lambda value: b"\1" if value else b"\0",
    DATE: lambda value: struct.pack(">Q", milliseconds(value) + 2**63),
}


_COMPARABLES: dict[int, Callable[[Any], Any]] = {
    NUMBER: lambda value: (0, 0) if is_nan(value) else (1, value),
    STRING: lambda value: value,
    OBJECT: lambda value: tuple((rank(item), name, sort_key(item)) for name, item in value.items()),
    ARRAY: lambda value: tuple(map(sort_key, value)),
    BINARY: lambda value: (len(value), getattr(value, "subtype", 0), bytes(value)),
    OBJECT_ID: lambda value: value.binary,
    BOOL: lambda value: value,
    DATE: milliseconds,
}
