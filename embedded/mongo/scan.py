"""Walking over the candidates of a plan.

A walk reads a few rows at a time and remembers its place by key, so that no SQLite statement is open while others
work: long walks can be interrupted between two reads, and a cursor costs nothing while nobody asks for more.
"""
# ruff: noqa: S608 - the names of tables are ours: a letter and a number of the catalog

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, TypeAlias

from embedded.mongo.errors import Code, MongoError
from embedded.mongo.plan import Interval, Plan

_FIRST_READ = 4
_LARGEST_READ = 256
_READ_BYTES = 1 << 20


#: A candidate: where it stands in the walk, its row, and its BSON. A plain tuple, for there are many.
Row: TypeAlias = tuple[Any, int, bytes]


class Scan:
    """`wanted` is how many rows will do, if that is known."""

    def __init__(self, connection: sqlite3.Connection, documents: str, plan: Plan, wanted: int = 0) -> None:
        self._connection = connection
        self._plan = plan
        self._first_read = min(wanted or _FIRST_READ, _LARGEST_READ)
        if plan.index is None:
            self._statement = f"SELECT doc, doc, body FROM {documents} WHERE doc > ?1 ORDER BY doc"
        else:
            self._statement = _index_statement(plan.index.table, documents, descending=plan.descending)

    def rows(self) -> Iterator[Row | None]:
        """Each document once; `None` before each read, where a caller may let others work.

        What comes between two `None`s was read at once, and is as fresh as the caller lets it be.
        """
        is_multikey = self._plan.index is not None and self._plan.index.multikey
        seen: set[int] = set()
        for arguments in self._starts():
            size, place, is_end = self._first_read, arguments, False
            while not is_end:
                yield None
                read, is_end = self._read(place, size)
                if read:
                    place = self._after(arguments, read[-1])
                    size = min(size * 4, _LARGEST_READ)
                yield from _unseen(read, seen) if is_multikey else read

    def _starts(self) -> Iterator[tuple[Any, ...]]:
        if self._plan.index is None:
            yield (0,)
            return
        ordered = reversed(self._plan.intervals) if self._plan.descending else self._plan.intervals
        for interval in ordered:
            yield _first_arguments(interval, descending=self._plan.descending)

    def _read(self, arguments: tuple[Any, ...], size: int) -> tuple[list[Row], bool]:
        """At most `size` rows and not many bytes; and whether there were no more."""
        rows: list[Row] = []
        total = 0
        try:
            cursor = self._connection.execute(self._statement, arguments)
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            raise MongoError(Code.QueryPlanKilled, "the collection or index was dropped during the query") from error
        for row in cursor:
            rows.append(row)
            total += len(row[2])
            if len(rows) >= size or total >= _READ_BYTES:
                cursor.close()
                return rows, False
        return rows, True

    def _after(self, arguments: tuple[Any, ...], last: Row) -> tuple[Any, ...]:
        key, doc, _ = last
        return (doc,) if self._plan.index is None else (key, doc, arguments[2])


def _unseen(rows: list[Row], seen: set[int]) -> Iterator[Row]:
    """An array has many keys, and the document behind them is one."""
    for row in rows:
        if row[1] not in seen:
            seen.add(row[1])
            yield row


_ANY_DOC = -1


def _first_arguments(interval: Interval, *, descending: bool) -> tuple[Any, ...]:
    """The place before the first row (its key and row number), and the key that ends the interval."""
    if descending:
        return (interval.high, _ANY_DOC, interval.low)
    return (interval.low, _ANY_DOC, interval.high)


def _index_statement(index: str, documents: str, *, descending: bool) -> str:
    """CROSS JOIN keeps the index as the outer loop, whatever SQLite thinks of the sizes."""
    after, until, order = ("<", ">=", "DESC") if descending else (">", "<", "ASC")
    return (
        f"SELECT i.key, i.doc, d.body FROM {index} i CROSS JOIN {documents} d ON d.doc = i.doc"
        f" WHERE (i.key, i.doc) {after} (?1, ?2) AND i.key {until} ?3 ORDER BY i.key {order}, i.doc {order}"
    )


def count_statement(index: str) -> str:
    return f"SELECT count(*) FROM {index} WHERE key >= ? AND key < ?"
