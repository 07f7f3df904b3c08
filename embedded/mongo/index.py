"""Indexes: the description of an index, the keys of a document in it, and its table of keys in SQLite."""
# ruff: noqa: S608 - the names of tables are ours: a letter and a number of the catalog

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from itertools import product
from typing import Any

from bson.regex import Regex

from embedded.mongo.errors import Code, MongoError, not_implemented
from embedded.mongo.keys import encode, inverted
from embedded.mongo.match import LOGICAL, compile_filter, is_operators
from embedded.mongo.paths import EMPTY_ARRAY, MISSING, Document, Path, elements_at

_OPTIONS = frozenset({"v", "key", "name", "unique", "sparse", "partialFilterExpression", "background"})
ID_INDEX = "_id_"


class Fields:
    """The encoded fields of one document. Each field is read and encoded only once for all indexes."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._values: dict[Path, tuple[list[Any], bool]] = {}
        self._encoded: dict[tuple[Path, int], set[bytes]] = {}

    def values(self, path: Path) -> tuple[list[Any], bool]:
        found = self._values.get(path)
        if found is None:
            found = self._values[path] = elements_at(self.document, path)
        return found

    def encoded(self, path: Path, direction: int) -> set[bytes]:
        found = self._encoded.get((path, direction))
        if found is None:
            plain = {encode(value) for value in self.values(path)[0]}
            found = self._encoded[path, direction] = plain if direction > 0 else set(map(inverted, plain))
        return found


class IndexSpec:
    """An index as `createIndexes` describes it. Raises if the description is invalid, or its kind not supported."""

    def __init__(self, document: Document) -> None:
        _check_options(document)
        self.name: str = document["name"]
        self.key: list[tuple[str, int]] = [(name, int(direction)) for name, direction in document["key"].items()]
        self.unique = bool(document.get("unique"))
        self.sparse = bool(document.get("sparse"))
        self.partial: Document | None = document.get("partialFilterExpression")
        self.paths: list[Path] = [tuple(name.split(".")) for name, _ in self.key]
        if self.sparse and self.partial is not None:
            raise MongoError(Code.CannotCreateIndex, 'cannot mix "partialFilterExpression" and "sparse" options')
        #: The names of the document's top-level fields on which its keys depend.
        self.roots = frozenset(name.partition(".")[0] for name in (*dict(self.key), *(self.partial or {})))
        self._covers = compile_filter(self.partial) if self.partial is not None else None

    def to_document(self) -> Document:
        """The description for `listIndexes` and for the catalog."""
        options: Document = {"v": 2, "key": dict(self.key), "name": self.name}
        if self.unique and self.name != ID_INDEX:
            options["unique"] = True
        if self.sparse:
            options["sparse"] = True
        if self.partial is not None:
            options["partialFilterExpression"] = self.partial
        return options

    def same_keys(self, other: IndexSpec) -> bool:
        """Whether both are the same index for MongoDB. Their names do not count."""
        return (self.key, self.unique, self.sparse, self.partial) == (
            other.key,
            other.unique,
            other.sparse,
            other.partial,
        )

    def keys(self, fields: Fields) -> tuple[set[bytes], int]:
        """The document's keys (empty if it is not in the index), and the field with an array, as a bit (1: the first
        field; 0: no array). An array gives the document several keys ("multikey").

        Raises `CannotIndexParallelArrays` if two fields are arrays.
        """
        if self._covers and not self._covers(fields.document):
            return set(), 0
        found = [fields.values(path) for path in self.paths]
        if self.sparse and all(value is MISSING for values, _ in found for value in values):
            return set(), 0
        arrays = [place for place, (_, is_array) in enumerate(found) if is_array]
        if len(arrays) > 1:
            names = " ".join(f"[{self.key[place][0]}]" for place in arrays)
            raise MongoError(Code.CannotIndexParallelArrays, f"cannot index parallel arrays {names}")
        encoded = [fields.encoded(path, direction) for path, (_, direction) in zip(self.paths, self.key, strict=True)]
        return {b"".join(parts) for parts in product(*encoded)}, sum(1 << place for place in arrays)


def _check_options(document: Document) -> None:
    for option in document:
        if option not in _OPTIONS:
            raise not_implemented(f"the index option '{option}'")
    key, name = document.get("key"), document.get("name")
    if not isinstance(key, dict) or not isinstance(name, str) or not name:
        raise MongoError(Code.FailedToParse, "an index specification needs a 'key' document and a 'name'")
    if not key:
        raise MongoError(Code.CannotCreateIndex, "Index keys cannot be empty.")
    _check_directions(key)
    _check_partial(document.get("partialFilterExpression", {}))


def _check_directions(key: Document) -> None:
    for field, direction in key.items():
        if isinstance(direction, str):
            raise not_implemented(f"an index of type '{direction}'")
        if direction not in (1, -1):
            raise MongoError(
                Code.CannotCreateIndex, f"Values in the index key pattern must be 1 or -1, not {direction}"
            )
        if not field or "$" in field:
            raise MongoError(Code.CannotCreateIndex, f"Index key '{field}' is no field name")


#: The operators that MongoDB allows in a partial index.
_PARTIAL_OPERATORS = frozenset({"$eq", "$gt", "$gte", "$lt", "$lte", "$in", "$exists"})


def _check_partial(expression: Any) -> None:
    if not isinstance(expression, dict):
        raise MongoError(Code.CannotCreateIndex, "'partialFilterExpression' for an index must be a document")
    for name, operand in expression.items():
        if name in LOGICAL:
            raise not_implemented(f"{name} in a partialFilterExpression")
        if isinstance(operand, Regex) or (
            is_operators(operand) and (set(operand) - _PARTIAL_OPERATORS or not operand.get("$exists", True))
        ):
            raise MongoError(
                Code.CannotCreateIndex, f"Expression not supported in partial index: {{{name}: {operand}}}"
            )


class Index:
    """An index and its table, with the columns `key` (order-preserving bytes) and `doc` (the row of the document)."""

    def __init__(self, connection: sqlite3.Connection, number: int, spec: IndexSpec) -> None:
        self.number = number
        self.spec = spec
        #: The fields, as bits, in which any document has or had an array. Such a field cannot give the order of a
        #: sort, and only one limit of a range can be used for it.
        self.multikey = 0
        self.table = f"i{number}"
        self._connection = connection
        self._holder = f"SELECT doc FROM {self.table} WHERE key = ?"
        self._add = f"INSERT OR IGNORE INTO {self.table} (key, doc) VALUES (?, ?)"
        self._remove = f"DELETE FROM {self.table} WHERE key = ? AND doc = ?"

    def create_table(self) -> None:
        primary_key = "key" if self.spec.unique else "key, doc"
        self._connection.execute(
            f"CREATE TABLE {self.table} (key BLOB NOT NULL, doc INTEGER NOT NULL, PRIMARY KEY ({primary_key}))"
            " WITHOUT ROWID"
        )

    def drop_table(self) -> None:
        self._connection.execute(f"DROP TABLE {self.table}")

    def holder(self, keys: Iterable[bytes], *, other_than: int | None = None) -> int | None:
        """The row of the document that has one of the keys already, if the index is unique."""
        if self.spec.unique:
            for key in keys:
                row = self._connection.execute(self._holder, (key,)).fetchone()
                if row and row[0] != other_than:
                    return int(row[0])
        return None

    def add(self, keys: Iterable[bytes], doc: int) -> None:
        self._connection.executemany(self._add, [(key, doc) for key in keys])

    def remove(self, keys: Iterable[bytes], doc: int) -> None:
        self._connection.executemany(self._remove, [(key, doc) for key in keys])

    def duplicate(self, namespace: str, document: Document) -> MongoError:
        """The error for a document whose key is taken."""
        pattern = dict(self.spec.key)
        value = {name: _first(document, path) for (name, _), path in zip(self.spec.key, self.spec.paths, strict=True)}
        shown = ", ".join(f"{name}: {_shown(item)}" for name, item in value.items())
        # in an index, an empty array is `undefined`, which drivers read as null
        value = {name: None if item is EMPTY_ARRAY else item for name, item in value.items()}
        return MongoError(
            Code.DuplicateKey,
            f"E11000 duplicate key error collection: {namespace} index: {self.spec.name} dup key: {{ {shown} }}",
            keyPattern=pattern,
            keyValue=value,
        )


def _first(document: Document, path: Path) -> Any:
    value = elements_at(document, path)[0][0]
    return None if value is MISSING else value


def _shown(value: Any) -> str:
    if value is EMPTY_ARRAY:
        return "undefined"
    return f'"{value}"' if isinstance(value, str) else str(value)
