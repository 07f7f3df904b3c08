"""The file: one SQLite database that holds every collection, its catalog, and the transaction writes share."""

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

#: "DBot", so that we never write into somebody else's database.
_APPLICATION_ID: Final = 0x44426F74
#: Of tables and keys. A file of a newer format is refused, an older one would be converted here.
FORMAT: Final = 1

_PRAGMAS = (
    "journal_mode = WAL",
    # a commit is in the operating system's hands when it is acknowledged: it survives the process, see decision 0005
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
    """Raises `StoreError` if the file is in use, damaged, not ours, or newer than this program."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.collections: dict[tuple[str, str], Collection] = {}
        self._lock = _lock(path)
        try:
            self.connection = _open(path)
            self._load_catalog()
        except (sqlite3.DatabaseError, bson.errors.BSONError) as error:
            raise StoreError(f"{path} is damaged or no database of this server: {error}") from error

    def _load_catalog(self) -> None:
        self.collections.clear()
        by_number: dict[int, Collection] = {}
        for number, db, name in self.connection.execute("SELECT number, db, name FROM collections"):
            by_number[number] = self.collections[db, name] = Collection(self.connection, number, f"{db}.{name}")
        rows = self.connection.execute("SELECT number, collection, spec, multikey FROM indexes ORDER BY number")
        for number, owner, spec, multikey in rows:
            index = Index(self.connection, number, IndexSpec(decode(spec)), multikey=bool(multikey))
            by_number[owner].indexes[index.spec.name] = index

    # --- transactions: begun by the first write, shared by all writes until the commit

    def begin(self) -> None:
        if not self.connection.in_transaction:
            self.connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("COMMIT")

    def rollback(self) -> None:
        """Undo everything since `begin`. Every `Collection` handed out before is void: the catalog is read anew."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self._load_catalog()

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """All or nothing, within the transaction."""
        self.begin()
        self.connection.execute("SAVEPOINT change")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK TO change")
            raise
        finally:
            self.connection.execute("RELEASE change")

    # --- the catalog

    def get(self, db: str, name: str) -> Collection | None:
        return self.collections.get((db, name))

    def get_or_create(self, db: str, name: str) -> Collection:
        """Raises `InvalidNamespace`."""
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
        """Build it over what is there. Raises `DuplicateKey`, and then there is no index."""
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
        index = collection.indexes[spec.name] = Index(self.connection, number, spec, multikey=False)
        index.create_table()
        return index

    def _insert(self, statement: str, values: tuple[object, ...]) -> int:
        return self.connection.execute(statement, values).lastrowid or 0

    def drop_index(self, collection: Collection, name: str) -> None:
        self.begin()
        index = collection.indexes.pop(name)
        index.drop_table()
        self.connection.execute("DELETE FROM indexes WHERE number = ?", (index.number,))

    def drop(self, db: str, name: str) -> None:
        self.begin()
        collection = self.collections.pop((db, name))
        for index in collection.indexes.values():
            index.drop_table()
        collection.drop_table()
        self.connection.execute("DELETE FROM indexes WHERE collection = ?", (collection.number,))
        self.connection.execute("DELETE FROM collections WHERE number = ?", (collection.number,))

    def close(self) -> None:
        """Leaves one file: what is in the log goes into the database."""
        self.connection.close()
        os.close(self._lock)


def _lock(path: Path) -> int:
    """A lock on a file beside it: SQLite has locks of its own on the database, and opening that twice loses them."""
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
