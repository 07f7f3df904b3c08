"""Rows as JSON, JSON lines or CSV. They are encoded batch by batch, so that any number of rows fits into memory."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from attrs import define

#: An item's fields.
Row = dict[str, Any]

#: Text that spreadsheets would run as a formula. A plain number is not a formula.
FORMULA = re.compile(r"(?![+-]?(\d+([.,]\d+)*|[.,]\d+)([eE][+-]?\d+)?$)[=+\-@\t\r\uff0b\uff0d\uff1d\uff20]")


class ItemFormat:
    media_type: str
    extension: str

    def begin(self, first: Callable[[int], Sequence[Row]]) -> None:
        """Called once, before `encode`. `first(n)` reads the first `n` rows of the whole result."""

    def encode(self, rows: Sequence[Row]) -> bytes:
        """The next rows, encoded. The first call also returns what precedes the first row, such as a header."""
        raise NotImplementedError

    def end(self, following: str | None) -> bytes:  # noqa: ARG002 - most formats have no end
        """What follows the last row. `following`: the cursor of the next page."""
        return b""


class JsonFormat(ItemFormat):
    """`{"items": […], "next": …}`."""

    media_type = "application/json"
    extension = "json"

    def __init__(self, fields: Sequence[str] = ()) -> None:
        self._fields = fields
        self._separator = b'{"items":[\n'

    def encode(self, rows: Sequence[Row]) -> bytes:
        parts = []
        for row in rows:
            parts += [self._separator, as_json(picked(row, self._fields))]
            self._separator = b",\n"
        return b"".join(parts)

    def end(self, following: str | None) -> bytes:
        opening = self._separator if self._separator != b",\n" else b"\n"
        return opening + b'],"next":' + orjson.dumps(following) + b"}\n"


@define(eq=False, repr=False, slots=False)
class JsonLinesFormat(ItemFormat):
    media_type = "application/x-ndjson"
    extension = "jsonl"

    _fields: Sequence[str] = ()

    def encode(self, rows: Sequence[Row]) -> bytes:
        return b"".join(as_json(picked(row, self._fields)) + b"\n" for row in rows)


class CsvFormat(ItemFormat):
    """The columns are the `fields`, or else those of the first hundred items of all. They are the same on each page:
    later items cannot add columns to a header that was already sent.

    Nested values are JSON, `null` is empty, booleans are `true` and `false`. `escape_formulas`: text that begins like
    a formula gets a `'` before it, which spreadsheets do not show. `bom`: by the mark at its beginning, spreadsheets
    know that the text is UTF-8.
    """

    media_type = "text/csv; charset=utf-8"
    extension = "csv"
    #: Enough rows to find out which columns there are.
    first_rows = 100

    def __init__(self, fields: Sequence[str] = (), *, escape_formulas: bool = True, bom: bool = False) -> None:
        self._fields = fields
        self._encoding = "utf-8-sig" if bom else "utf-8"
        self._shown = _escaped if escape_formulas else str
        self._columns = list(fields)
        self._is_begun = False

    def begin(self, first: Callable[[int], Sequence[Row]]) -> None:
        if not self._columns:
            self._columns = list(dict.fromkeys(name for row in first(self.first_rows) for name in row))

    def encode(self, rows: Sequence[Row]) -> bytes:
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer)
        if not self._is_begun:
            self._is_begun = True
            writer.writerows([list(map(self._shown, self._columns))] if self._columns else [])
        picks = (picked(row, self._fields) for row in rows)
        writer.writerows([self._cell(row.get(column)) for column in self._columns] for row in picks)
        encoded = buffer.getvalue().encode(self._encoding, "replace")
        self._encoding = "utf-8"
        return encoded

    def end(self, following: str | None) -> bytes:  # noqa: ARG002 - a table has no end
        return b"" if self._is_begun else self.encode(())

    def _cell(self, value: Any) -> str:
        if value is None:
            return ""
        return self._shown(value) if isinstance(value, str) else as_json(value).decode()


FORMATS: dict[str, type[JsonFormat | JsonLinesFormat | CsvFormat]] = {
    "json": JsonFormat,
    "jsonl": JsonLinesFormat,
    "csv": CsvFormat,
}


def picked(row: Row, fields: Sequence[str]) -> Row:
    """These fields of the row, or all if none is named. `seller.name` is a field of the object `seller`, unless the
    row itself has a field of that name.
    """
    if not fields:
        return row
    values = ((name, value_of(row, name)) for name in fields)
    return {name: value for name, value in values if value is not MISSING}


MISSING = object()


def value_of(row: Row, name: str) -> Any:
    if name in row:
        return row[name]
    outer, _, inner = name.partition(".")
    value = row.get(outer)
    return value.get(inner, MISSING) if isinstance(value, dict) else MISSING


def as_json(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=str)
    except TypeError:
        # orjson refuses the same values as BSON: integers beyond 64 bits, half surrogate pairs
        return json.dumps(value, default=str, separators=(",", ":")).encode()


def _escaped(text: str) -> str:
    return f"'{text}" if FORMULA.match(text) else text
