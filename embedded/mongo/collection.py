"""One collection: its indexes, and its documents, which are stored as the BSON that clients have sent."""

# ruff: noqa: S608 - the names of tables are ours: a letter and a number of the catalog

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import bson
from bson.codec_options import CodecOptions, DatetimeConversion

from embedded.mongo.errors import Code, MongoError
from embedded.mongo.index import Fields, Index
from embedded.mongo.keys import sort_key
from embedded.mongo.match import Predicate, compile_filter
from embedded.mongo.paths import MISSING, Document, Path, elements_at
from embedded.mongo.plan import Interval, QueryPlan, Sort, choose

# --- walking over the candidates of a plan.
#
# A walk reads a few rows at a time and remembers its position by key, so no SQLite statement is open while other
# commands run. Long walks can be interrupted between two reads, and an unused cursor costs nothing.

_FIRST_READ = 4
_LARGEST_READ = 256
_READ_BYTES = 1 << 20


#: A candidate: its place in the walk, its row, and its BSON. It is a plain tuple, because there are many.
Row: TypeAlias = tuple[Any, int, bytes]


class Scan:
    """A walk over the candidates of a plan. `wanted`: how many rows are enough, if this is known (0: unknown)."""

    def __init__(self, connection: sqlite3.Connection, documents: str, plan: QueryPlan, wanted: int = 0) -> None:
        self._connection = connection
        self._plan = plan
        self._first_read = min(wanted or _FIRST_READ, _LARGEST_READ)
        if plan.index is None:
            self._statement = f"SELECT doc, doc, body FROM {documents} WHERE doc > ?1 ORDER BY doc"
        else:
            self._statement = _index_statement(plan.index.table, documents, descending=plan.descending)

    def rows(self) -> Iterator[Row | None]:
        """Each document once, and `None` before each read, where the caller may let other commands run.

        Rows between two `None`s were read at once, and stay current as long as no other command runs.
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
        """At most `size` rows, fewer if they reach `_READ_BYTES`; and whether there are no more rows."""
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
    """Leave out rows that were seen before: an array has many keys, which all lead to the same document."""
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
    """The SQL of a walk over an index. CROSS JOIN keeps the index as the outer loop, whatever sizes
    SQLite assumes.
    """
    after, until, order = ("<", ">=", "DESC") if descending else (">", "<", "ASC")
    return (
        f"SELECT i.key, i.doc, d.body FROM {index} i CROSS JOIN {documents} d ON d.doc = i.doc"
        f" WHERE (i.key, i.doc) {after} (?1, ?2) AND i.key {until} ?3 ORDER BY i.key {order}, i.doc {order}"
    )


def count_statement(index: str) -> str:
    return f"SELECT count(*) FROM {index} WHERE key >= ? AND key < ?"


MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
#: MongoDB's limit for sorts that no index answers.
MAX_SORT_BYTES = 100 * 1024 * 1024

CODEC: CodecOptions[Document] = CodecOptions(
    document_class=dict, tz_aware=False, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


def decode(body: bytes) -> Document:
    return bson.decode(body, CODEC)


class FoundDocument:
    """A document that matched: its row, its BSON, and the document itself, which is decoded on first use."""

    __slots__ = ("_document", "body", "doc")

    def __init__(self, doc: int, body: bytes, document: Document | None = None) -> None:
        self.doc = doc
        self.body = body
        self._document = document

    @property
    def document(self) -> Document:
        if self._document is None:
            self._document = decode(self.body)
        return self._document


class Search(NamedTuple):
    """A search; `limit` 0 is no limit."""

    query: Document
    sort: Sort = ()
    skip: int = 0
    limit: int = 0


class Collection:
    def __init__(self, connection: sqlite3.Connection, number: int, namespace: str) -> None:
        self.number = number
        self.namespace = namespace
        self.indexes: dict[str, Index] = {}
        self.table = f"c{number}"
        self._connection = connection

    def create_table(self) -> None:
        self._connection.execute(
            f"CREATE TABLE {self.table} (doc INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL)"
        )

    def drop_table(self) -> None:
        self._connection.execute(f"DROP TABLE {self.table}")

    # --- writing: everything that can be refused is refused before the first change

    def insert(self, document: Document) -> None:
        """Insert one document. Raises `DuplicateKey`, `BSONObjectTooLarge`, `InvalidIdField` or
        `CannotIndexParallelArrays`.
        """
        body = _encoded(document)
        fields = Fields(document)
        keys = [(index, *index.spec.keys(fields)) for index in self.indexes.values()]
        for index, own, _ in keys:
            if index.holder(own) is not None:
                raise index.duplicate(self.namespace, document)
        doc = self._connection.execute(f"INSERT INTO {self.table} (body) VALUES (?)", (body,)).lastrowid
        for index, own, multikey in keys:
            self._add(index, own, doc or 0, multikey=multikey)

    def replace(self, found: FoundDocument, new: Document) -> bool:
        """Replace `found`. Returns whether the document changed. Raises the errors of `insert`."""
        body = _encoded(new)
        if body == found.body:
            return False
        changes: list[tuple[Index, set[bytes], set[bytes], int]] = []
        old_fields, new_fields = Fields(found.document), Fields(new)
        roots = frozenset[str]().union(*(index.spec.roots for index in self.indexes.values()))
        changed = {name for name in roots if _has_changed(found.document.get(name, MISSING), new.get(name, MISSING))}
        for index in self.indexes.values():
            if index.spec.roots.isdisjoint(changed):
                continue
            old_keys, _ = index.spec.keys(old_fields)
            new_keys, multikey = index.spec.keys(new_fields)
            if index.holder(new_keys - old_keys, other_than=found.doc) is not None:
                raise index.duplicate(self.namespace, new)
            changes.append((index, old_keys - new_keys, new_keys - old_keys, multikey))
        for index, gone, come, multikey in changes:
            index.remove(gone, found.doc)
            self._add(index, come, found.doc, multikey=multikey)
        self._connection.execute(f"UPDATE {self.table} SET body = ? WHERE doc = ?", (body, found.doc))
        return True

    def remove(self, found: FoundDocument) -> None:
        fields = Fields(found.document)
        for index in self.indexes.values():
            index.remove(index.spec.keys(fields)[0], found.doc)
        self._connection.execute(f"DELETE FROM {self.table} WHERE doc = ?", (found.doc,))

    def fill(self, index: Index) -> None:
        """Give a new index the keys of all documents. Raises `DuplicateKey`."""
        for row in Scan(self._connection, self.table, QueryPlan()).rows():
            if row is not None:
                _, doc, body = row
                document = decode(body)
                keys, multikey = index.spec.keys(Fields(document))
                if index.holder(keys) is not None:
                    raise index.duplicate(self.namespace, document)
                self._add(index, keys, doc, multikey=multikey)

    def _add(self, index: Index, keys: set[bytes], doc: int, *, multikey: int) -> None:
        if keys:
            index.add(keys, doc)
        if multikey & ~index.multikey:
            index.multikey |= multikey
            self._connection.execute(
                "UPDATE indexes SET multikey = ? WHERE number = ?", (index.multikey << 1, index.number)
            )

    # --- reading

    def find(self, search: Search) -> Iterator[FoundDocument | None]:
        """The documents in order, and `None` where other commands may run. Raises if the query is
        not a valid filter.
        """
        matches, plan = self._prepare(search)
        wanted = search.skip + search.limit if plan.is_exact and plan.is_sorted else 0
        found = self._matching(matches, plan, wanted)
        if search.sort and not plan.is_sorted:
            found = _sorted(found, search.sort, search.skip + search.limit if search.limit else 0)
        return _window(found, search.skip, search.limit)

    def _prepare(self, search: Search) -> tuple[Predicate, QueryPlan]:
        matches = compile_filter(search.query)
        return matches, choose(self.indexes.values(), search.query, search.sort)

    def _matching(self, matches: Predicate, plan: QueryPlan, wanted: int = 0) -> Iterator[FoundDocument | None]:
        for row in Scan(self._connection, self.table, plan, wanted).rows():
            if row is None:
                yield None
                continue
            _, doc, body = row
            if plan.is_exact:
                yield FoundDocument(doc, body)
            elif matches(document := decode(body)):
                yield FoundDocument(doc, body, document)

    def count(self, query: Document, limit: int = 0) -> Iterator[int | None]:
        """The last value is the number of matching documents, up to `limit` (0 is no limit). Before it, `None` is
        yielded where other commands may run. Raises if the query is not a valid filter.
        """
        matches, plan = self._prepare(Search(query))
        if plan.is_exact:
            total = self._count_keys(plan)
            return iter((min(total, limit) if limit else total,))
        return _count(self._matching(matches, plan), limit)

    def _count_keys(self, plan: QueryPlan) -> int:
        if plan.index is None:
            return int(self._connection.execute(f"SELECT count(*) FROM {self.table}").fetchone()[0])
        statement = count_statement(plan.index.table)
        return sum(self._connection.execute(statement, interval).fetchone()[0] for interval in plan.intervals)

    def is_current(self, found: FoundDocument) -> bool:
        """Whether the document is still what it was when it was found."""
        row = self._connection.execute(f"SELECT body FROM {self.table} WHERE doc = ?", (found.doc,)).fetchone()
        return row is not None and row[0] == found.body


def _has_changed(old: Any, new: Any) -> bool:
    """Whether an update has changed a field. Most updates change few fields, so most indexes stay as they are."""
    if type(old) is not type(new):
        return True
    # compared as BSON, because inside of these 1 and true are equal for Python, but not for an index
    if isinstance(old, dict | list):
        return bson.encode({"": old}, codec_options=CODEC) != bson.encode({"": new}, codec_options=CODEC)
    return bool(old != new)


def _encoded(document: Document) -> bytes:
    if isinstance(document["_id"], list):
        raise MongoError(Code.InvalidIdField, "The '_id' value cannot be of type array")
    body = bson.encode(document, codec_options=CODEC)
    if len(body) > MAX_DOCUMENT_BYTES:
        raise MongoError(
            Code.BSONObjectTooLarge,
            f"object to insert too large. size in bytes: {len(body)}, max size: {MAX_DOCUMENT_BYTES}",
        )
    return body


def _count(found: Iterator[FoundDocument | None], limit: int) -> Iterator[int | None]:
    total = 0
    for one in _window(found, 0, limit):
        if one is None:
            yield None
        else:
            total += 1
    yield total


def _window(found: Iterator[FoundDocument | None], skip: int, limit: int) -> Iterator[FoundDocument | None]:
    passed = 0
    for one in found:
        if one is None:
            yield None
            continue
        passed += 1
        if passed > skip:
            yield one
        if limit and passed >= skip + limit:
            return


def _sort(found: list[FoundDocument], sort: Sort) -> None:
    """Sort in place: by the last key first, because Python's sort is stable."""
    for name, direction in reversed(sort):
        found.sort(key=_sort_key(tuple(name.split(".")), direction), reverse=direction < 0)


def _sort_key(path: Path, direction: int) -> Callable[[FoundDocument], tuple[Any, ...]]:
    return lambda one: _sort_value(one.document, path, direction)


def _sort_value(document: Document, path: Path, direction: int) -> tuple[Any, ...]:
    """The value by which a document is sorted. An array counts as its smallest element, or as its largest in a
    descending order.
    """
    values, _ = elements_at(document, path)
    if len(values) == 1:
        return sort_key(values[0])
    return (min if direction > 0 else max)(map(sort_key, values))


def _sorted(found: Iterator[FoundDocument | None], sort: Sort, wanted: int) -> Iterator[FoundDocument | None]:
    """All documents in order, or the first `wanted`. Raises if they need more memory than MongoDB would allow."""
    kept: list[FoundDocument] = []
    size = 0
    for one in found:
        if one is None:
            yield None
            continue
        kept.append(one)
        size += len(one.body)
        if wanted and len(kept) >= 2 * wanted + 1000:
            _sort(kept, sort)
            del kept[wanted:]
            size = sum(len(item.body) for item in kept)
        if size > MAX_SORT_BYTES:
            raise MongoError(
                Code.QueryExceededMemoryLimitNoDiskUseAllowed,
                f"Sort exceeded memory limit of {MAX_SORT_BYTES} bytes, but did not opt in to external sorting.",
            )
    _sort(kept, sort)
    yield from kept
