"""The file: one SQLite database with all collections and the catalog, and the transaction that writes share."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import bson

from embedded.mongo.collection import Collection, decode
from embedded.mongo.errors import Code, MongoError
from embedded.mongo.index import ID_INDEX, Index, IndexSpec

#: "DBot": marks the database as ours, so that we never write into the database of another program.
_APPLICATION_ID: Final = 0x44426F74
#: The format of tables and keys. A file with a newer format is refused; a file with an older one would be converted.
FORMAT: Final = 1

_PRAGMAS = (
    "journal_mode = WAL",
    # an acknowledged commit is in the operating system's cache, so it survives the process (decision 0005)
    "synchronous = NORMAL",
    "locking_mode = EXCLUSIVE",
    "cache_size = -65536",
    "mmap_size = 268435456",
    "temp_store = MEMORY",
    "journal_size_limit = 67108864",
)
_CATALOG = (
    """CREATE TABLE collections (
        number INTEGER PRIMARY KEY AUTOINCREMENT, db TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (db, name))""",
    """CREATE TABLE indexes (
        number INTEGER PRIMARY KEY AUTOINCREMENT, collection INTEGER NOT NULL, spec BLOB NOT NULL,
        multikey INTEGER NOT NULL DEFAULT 0)""",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
)


class StoreError(Exception):
    """The file cannot be used; the message is for the user."""


class Store:
    """The open file. Raises `StoreError` if it is in use, damaged, not ours, or newer than this program."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.collections: dict[tuple[str, str], Collection] = {}
        self._is_begun = False
        #: Whether the current command has written anything since the last `keep`.
        self._is_marked = False
        self._lock = _lock(path)
        try:
            self.connection = _open(path)
            self._load_catalog()
        except (sqlite3.DatabaseError, bson.errors.BSONError) as error:
            raise StoreError(f"{path} is damaged, or is not a database of this server: {error}") from error

    def _load_catalog(self) -> None:
        """Read the catalog. Known collections and indexes stay the same objects, because running
        commands use them.
        """
        known, self.collections = self.collections, {}
        known_indexes: dict[int, dict[str, Index]] = {}
        by_number: dict[int, Collection] = {}
        for number, db, name in self.connection.execute("SELECT number, db, name FROM collections"):
            collection = known.get((db, name))
            if collection is None or collection.number != number:
                collection = Collection(self.connection, number, f"{db}.{name}")
            by_number[number] = self.collections[db, name] = collection
            known_indexes[number], collection.indexes = collection.indexes, {}
        rows = self.connection.execute("SELECT number, collection, spec, multikey FROM indexes ORDER BY number")
        for number, owner, document, multikey in rows:
            spec = IndexSpec(decode(document))
            index = known_indexes[owner].get(spec.name)
            if index is None or index.number != number:
                index = Index(self.connection, number, spec)
            # an odd number was written by an older version, which did not store the field: then all fields count
            index.multikey = (1 << len(spec.key)) - 1 if multikey % 2 else multikey >> 1
            by_number[owner].indexes[spec.name] = index

    # --- transactions: begun by the first write, shared by all writes until the commit

    def begin(self) -> None:
        """To be called before each write. The first write of a command sets a savepoint."""
        if not self._is_begun:
            self.connection.execute("BEGIN IMMEDIATE")
            self._is_begun = True
        if not self._is_marked:
            self.connection.execute("SAVEPOINT command")
            self._is_marked = True

    def keep(self) -> None:
        """Keep the writes of the current command, even if later writes are undone."""
        if self._is_marked:
            self.connection.execute("RELEASE command")
            self._is_marked = False

    def undo(self) -> bool:
        """Undo the writes since the last `keep`. False if SQLite has undone the whole transaction by itself."""
        if self._is_begun and not self.connection.in_transaction:
            return False
        if self._is_marked:
            self.connection.execute("ROLLBACK TO command")
            self.keep()
            self._load_catalog()
        return True

    def commit(self) -> None:
        self.keep()
        if self._is_begun:
            self.connection.execute("COMMIT")
            self._is_begun = False

    def rollback(self) -> None:
        """Undo everything since the last commit."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self._is_begun = self._is_marked = False
        self._load_catalog()

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """A block whose writes are all kept or all undone, within the command."""
        self.begin()
        self.connection.execute("SAVEPOINT change")
        try:
            yield
        except BaseException:
            # a full disk may have ended the transaction with all its savepoints
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK TO change")
                self.connection.execute("RELEASE change")
            raise
        self.connection.execute("RELEASE change")

    # --- the catalog

    def get(self, db: str, name: str) -> Collection | None:
        return self.collections.get((db, name))

    def get_or_create(self, db: str, name: str) -> Collection:
        """The collection, which is created if it does not exist. Raises `InvalidNamespace`."""
        collection = self.get(db, name)
        if collection is not None:
            return collection
        _check_namespace(db, name)
        with self.savepoint():
            number = self._insert("INSERT INTO collections (db, name) VALUES (?, ?)", (db, name))
            collection = self.collections[db, name] = Collection(self.connection, number, f"{db}.{name}")
            collection.create_table()
            self._add_index(collection, IndexSpec({"key": {"_id": 1}, "name": ID_INDEX, "unique": True}))
        return collection

    def create_index(self, collection: Collection, spec: IndexSpec) -> None:
        """Add an index and fill it with the keys of all documents. Raises `DuplicateKey`; then there is no index."""
        try:
            with self.savepoint():
                collection.fill(self._add_index(collection, spec))
        except MongoError:
            del collection.indexes[spec.name]
            raise

    def _add_index(self, collection: Collection, spec: IndexSpec) -> Index:
        document = {**spec.to_document(), "unique": spec.unique}
        number = self._insert(
            "INSERT INTO indexes (collection, spec) VALUES (?, ?)", (collection.number, bson.encode(document))
        )
        index = collection.indexes[spec.name] = Index(self.connection, number, spec)
        index.create_table()
        return index

    def _insert(self, statement: str, values: tuple[object, ...]) -> int:
        return self.connection.execute(statement, values).lastrowid or 0

    def drop_index(self, collection: Collection, name: str) -> None:
        self.begin()
        index = collection.indexes[name]
        index.drop_table()
        self.connection.execute("DELETE FROM indexes WHERE number = ?", (index.number,))
        del collection.indexes[name]

    def drop(self, db: str, name: str) -> None:
        self.begin()
        collection = self.collections[db, name]
        for index in collection.indexes.values():
            index.drop_table()
        collection.drop_table()
        self.connection.execute("DELETE FROM indexes WHERE collection = ?", (collection.number,))
        self.connection.execute("DELETE FROM collections WHERE number = ?", (collection.number,))
        del self.collections[db, name]

    def close(self) -> None:
        """Close the database. SQLite moves its log into the database, so that only one file is left."""
        self.connection.close()
        os.close(self._lock)


def _lock(path: Path) -> int:
    """Lock a file beside the database. The database itself is not locked, because SQLite would lose its own locks if
    we opened and closed the same file.
    """
    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StoreError(f"{path} is in use by another embedded MongoDB server") from error
    return descriptor


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=512)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    is_empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if not is_empty and connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
        raise StoreError(f"{path} is a database of another program")
    if version > FORMAT:
        raise StoreError(f"{path} is of a newer version (format {version}, this program reads {FORMAT}): update it")
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    if is_empty:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _CATALOG:
            connection.execute(statement)
        connection.execute("COMMIT")
    return connection


def _check_namespace(db: str, name: str) -> None:
    if not name or "$" in name or "\0" in name or name.startswith((".", "system.")) or name.endswith("."):
        raise MongoError(Code.InvalidNamespace, f"Invalid collection name: {name}")
    if not db or set(db) & set('/\\. "$\0'):
        raise MongoError(Code.InvalidNamespace, f"Invalid database name: {db}")
