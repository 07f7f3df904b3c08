"""The commands about collections and indexes, and the table of all commands by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import bson
from bson import Int64

from embedded.mongo.arguments import CommandArguments
from embedded.mongo.collection import MAX_DOCUMENT_BYTES, Collection
from embedded.mongo.cursors import FIRST_BATCH, Answer, Cursors, Outflow
from embedded.mongo.errors import Code, MongoError, not_implemented
from embedded.mongo.index import ID_INDEX, IndexSpec
from embedded.mongo.login import MECHANISM
from embedded.mongo.match import compile_filter
from embedded.mongo.paths import Document
from embedded.mongo.reads import Reads
from embedded.mongo.store import Store
from embedded.mongo.wire import MAX_MESSAGE_BYTES
from embedded.mongo.writes import MAX_STATEMENTS, Writes

# --- the commands about collections and their indexes


class Schema:
    def __init__(self, store: Store, cursors: Cursors) -> None:
        self._store = store
        self._cursors = cursors

    def create_indexes(self, command: CommandArguments) -> Document:
        command.allow("indexes")
        specs = [IndexSpec(spec) for spec in command.required("indexes", list)]
        name = command.required("createIndexes", str)
        created_collection = self._store.get(command.db, name) is None
        collection = self._store.get_or_create(command.db, name)
        before = len(collection.indexes)
        for spec in specs:
            if not _exists(collection, spec):
                self._store.create_index(collection, spec)
        after = len(collection.indexes)
        reply: Document = {
            "numIndexesBefore": before,
            "numIndexesAfter": after,
            "createdCollectionAutomatically": created_collection,
        }
        return reply | ({"note": "all indexes already exist"} if before == after else {})

    def list_indexes(self, command: CommandArguments) -> Answer:
        command.allow("cursor")
        collection = self._existing(command, "listIndexes")
        specs = [index.spec.to_document() for index in collection.indexes.values()]
        return self._listing(command, collection.namespace, specs)

    def drop_indexes(self, command: CommandArguments) -> Document:
        command.allow("index")
        collection = self._existing(command, "dropIndexes")
        before = len(collection.indexes)
        for name in _names(collection, command.any("index")):
            self._store.drop_index(collection, name)
        return {"nIndexesWas": before}

    def list_collections(self, command: CommandArguments) -> Answer:
        command.allow("filter", "nameOnly", "authorizedCollections", "cursor")
        matches = compile_filter(command.optional("filter", dict, {}))
        shown = (
            {"name": name, "type": "collection"} for db, name in sorted(self._store.collections) if db == command.db
        )
        details = {} if command.flag("nameOnly") else {"options": {}, "info": {"readOnly": False}}
        listed = [document | details for document in shown if matches(document)]
        return self._listing(command, f"{command.db}.$cmd.listCollections", listed)

    def list_databases(self, command: CommandArguments) -> Document:
        command.allow("filter", "nameOnly", "authorizedDatabases")
        matches = compile_filter(command.optional("filter", dict, {}))
        shown = [{"name": name} for name in sorted({db for db, _ in self._store.collections})]
        sizes = {} if command.flag("nameOnly") else {"sizeOnDisk": Int64(self._size()), "empty": False}
        databases = [document | sizes for document in shown if matches(document)]
        return {"databases": databases} | ({} if command.flag("nameOnly") else {"totalSize": Int64(self._size())})

    def _size(self) -> int:
        """The size of the one file that holds all databases."""
        return self._store.path.stat().st_size

    def drop(self, command: CommandArguments) -> Document:
        command.allow()
        collection = self._existing(command, "drop")
        count = len(collection.indexes)
        self._store.drop(command.db, command.required("drop", str))
        return {"nIndexesWas": count, "ns": collection.namespace}

    def drop_database(self, command: CommandArguments) -> Document:
        command.allow()
        names = [name for db, name in self._store.collections if db == command.db]
        for name in names:
            self._store.drop(command.db, name)
        return {"dropped": command.db} if names else {}

    def _existing(self, command: CommandArguments, name: str) -> Collection:
        collection = self._store.get(command.db, command.required(name, str))
        if collection is None:
            raise MongoError(Code.NamespaceNotFound, f"ns does not exist: {command.db}.{command.any(name)}")
        return collection

    def _listing(self, command: CommandArguments, namespace: str, documents: Iterable[Document]) -> Answer:
        options = CommandArguments("cursor", command.optional("cursor", dict, {}))
        options.allow("batchSize")
        flow: Outflow = ((document, len(bson.encode(document))) for document in documents)
        return self._cursors.first(namespace, flow, options.count("batchSize", FIRST_BATCH))


def _exists(collection: Collection, spec: IndexSpec) -> bool:
    """Whether the index exists. Raises `IndexOptionsConflict` or `IndexKeySpecsConflict` for a similar index."""
    if spec.key == [("_id", 1)]:
        return True
    for index in collection.indexes.values():
        if not index.spec.same_keys(spec):
            continue
        if index.spec.name != spec.name:
            raise MongoError(
                Code.IndexOptionsConflict, f"Index already exists with a different name: {index.spec.name}"
            )
        return True
    if spec.name in collection.indexes:
        raise MongoError(
            Code.IndexKeySpecsConflict,
            f"An existing index has the same name as the requested index. Requested index: {spec.to_document()}, "
            f"existing index: {collection.indexes[spec.name].spec.to_document()}",
        )
    return False


def _names(collection: Collection, wanted: Any) -> list[str]:
    """The names of the indexes that are meant by a name, by a key, or by `*` (all except `_id`). Raises
    `IndexNotFound`, `InvalidOptions`.
    """
    if wanted == "*":
        return [name for name in collection.indexes if name != ID_INDEX]
    names = [
        index.spec.name
        for index in collection.indexes.values()
        if (isinstance(wanted, dict) and list(wanted.items()) == index.spec.key) or index.spec.name == wanted
    ]
    if not names:
        raise MongoError(Code.IndexNotFound, f"index not found with name [{wanted}]")
    if ID_INDEX in names:
        raise MongoError(Code.InvalidOptions, "cannot drop _id index")
    return names


# --- every command

#: The protocol version of MongoDB 7.0: the supported subset behaves like this version.
_WIRE_VERSION = 21
_VERSION = [7, 0, 0, 0]


def hello(command: CommandArguments) -> Document:
    """The reply of a standalone server without sessions. It has no `setName` and no `logicalSessionTimeoutMinutes`,
    so drivers do not retry writes.
    """
    mechanisms = {"saslSupportedMechs": [MECHANISM]} if command.any("saslSupportedMechs") else {}
    return {
        "helloOk": True,
        "isWritablePrimary": True,
        "ismaster": True,
        "maxBsonObjectSize": MAX_DOCUMENT_BYTES,
        "maxMessageSizeBytes": MAX_MESSAGE_BYTES,
        "maxWriteBatchSize": MAX_STATEMENTS,
        "localTime": datetime.now(UTC),
        "minWireVersion": 0,
        "maxWireVersion": _WIRE_VERSION,
        "readOnly": False,
        **mechanisms,
    }


def ping(_: CommandArguments) -> Document:
    return {}


def build_info(_: CommandArguments) -> Document:
    return {
        "version": "7.0.0",
        "versionArray": _VERSION,
        "gitVersion": "discoverybot-embedded",
        "modules": [],
        "bits": 64,
        "maxBsonObjectSize": MAX_DOCUMENT_BYTES,
    }


def connection_status(_: CommandArguments) -> Document:
    return {"authInfo": {"authenticatedUsers": [], "authenticatedUserRoles": []}}


Handler = Callable[[CommandArguments], Document | Answer]

_HANDSHAKE: Mapping[str, Callable[[CommandArguments], Document]] = {
    "hello": hello,
    "isMaster": hello,
    "ismaster": hello,
    "ping": ping,
    "buildInfo": build_info,
    "buildinfo": build_info,
    "connectionStatus": connection_status,
    "endSessions": ping,
}
_READS: Mapping[str, Callable[[Reads, CommandArguments], Document | Answer]] = {
    "find": Reads.find,
    "getMore": Reads.get_more,
    "killCursors": Reads.kill_cursors,
    "count": Reads.count,
    "distinct": Reads.distinct,
    "aggregate": Reads.aggregate,
}
_WRITES: Mapping[str, Callable[[Writes, CommandArguments], Document | Answer]] = {
    "insert": Writes.insert,
    "update": Writes.update,
    "delete": Writes.delete,
    "findAndModify": Writes.find_and_modify,
    "findandmodify": Writes.find_and_modify,
}
_SCHEMA: Mapping[str, Callable[[Schema, CommandArguments], Document | Answer]] = {
    "createIndexes": Schema.create_indexes,
    "listIndexes": Schema.list_indexes,
    "dropIndexes": Schema.drop_indexes,
    "listCollections": Schema.list_collections,
    "listDatabases": Schema.list_databases,
    "drop": Schema.drop,
    "dropDatabase": Schema.drop_database,
}
NAMES = (*_HANDSHAKE, *_READS, *_WRITES, *_SCHEMA)

_READ_CONCERNS = frozenset({"local", "available", "majority"})


class Commands:
    """Runs commands on one store."""

    def __init__(self, store: Store) -> None:
        self._cursors = Cursors()
        reads, writes, schema = Reads(store, self._cursors), Writes(store), Schema(store, self._cursors)
        self._table: dict[str, Handler] = {
            **_HANDSHAKE,
            **{name: partial(handler, reads) for name, handler in _READS.items()},
            **{name: partial(handler, writes) for name, handler in _WRITES.items()},
            **{name: partial(handler, schema) for name, handler in _SCHEMA.items()},
        }

    def run(self, command: Document) -> Document | Answer:
        """The reply, or the steps that return the reply. Raises `MongoError` here or in a step."""
        name = next(iter(command), "")
        if name not in self._table:
            raise MongoError(Code.CommandNotFound, f"no such command: '{name}'")
        if "$db" not in command:
            raise MongoError(Code.IDLFailedToParse, "OP_MSG requests require a $db argument")
        _check_session(command)
        _check_concerns(command)
        return self._table[name](CommandArguments(name, command))

    def forget(self) -> None:
        """Forget all cursors, because a rollback makes them invalid."""
        self._cursors.clear()


def _check_session(command: Document) -> None:
    if "txnNumber" in command or "autocommit" in command or command.get("startTransaction"):
        raise MongoError(
            Code.IllegalOperation, "Transaction numbers are only allowed on a replica set member or mongos"
        )


def _check_concerns(command: Document) -> None:
    """Refuse concerns that a single machine cannot fulfil. `majority` and `j` are fulfilled: the machine is its own
    majority, and acknowledged writes are in the journal.
    """
    write = command.get("writeConcern") or {}
    if isinstance(write.get("w"), int) and write["w"] > 1:
        raise MongoError(Code.BadValue, "cannot use 'w' > 1 when a host is not replicated")
    level = (command.get("readConcern") or {}).get("level", "local")
    if level not in _READ_CONCERNS:
        raise not_implemented(f"the read concern '{level}'")
