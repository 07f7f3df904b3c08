"""Every command, by the names drivers use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from embedded.mongo.arguments import Arguments
from embedded.mongo.collection import MAX_DOCUMENT_BYTES
from embedded.mongo.cursors import Answer, Cursors
from embedded.mongo.errors import Code, MongoError, not_implemented
from embedded.mongo.login import MECHANISM
from embedded.mongo.paths import Document
from embedded.mongo.reads import Reads
from embedded.mongo.schema import Schema
from embedded.mongo.store import Store
from embedded.mongo.wire import MAX_MESSAGE_BYTES
from embedded.mongo.writes import MAX_STATEMENTS, Writes

#: The protocol version of MongoDB 7.0, whose behaviour the supported subset has.
_WIRE_VERSION = 21
_VERSION = [7, 0, 0, 0]


def hello(command: Arguments) -> Document:
    """A standalone without sessions: no `setName`, no `logicalSessionTimeoutMinutes`, so no retryable writes."""
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


def ping(_: Arguments) -> Document:
    return {}


def build_info(_: Arguments) -> Document:
    return {
        "version": "7.0.0",
        "versionArray": _VERSION,
        "gitVersion": "discoverybot-embedded",
        "modules": [],
        "bits": 64,
        "maxBsonObjectSize": MAX_DOCUMENT_BYTES,
    }


def connection_status(_: Arguments) -> Document:
    return {"authInfo": {"authenticatedUsers": [], "authenticatedUserRoles": []}}


Handler = Callable[[Arguments], Document | Answer]

_HANDSHAKE: Mapping[str, Callable[[Arguments], Document]] = {
    "hello": hello,
    "isMaster": hello,
    "ismaster": hello,
    "ping": ping,
    "buildInfo": build_info,
    "buildinfo": build_info,
    "connectionStatus": connection_status,
    "endSessions": ping,
}
_READS: Mapping[str, Callable[[Reads, Arguments], Document | Answer]] = {
    "find": Reads.find,
    "getMore": Reads.get_more,
    "killCursors": Reads.kill_cursors,
    "count": Reads.count,
    "distinct": Reads.distinct,
    "aggregate": Reads.aggregate,
}
_WRITES: Mapping[str, Callable[[Writes, Arguments], Document | Answer]] = {
    "insert": Writes.insert,
    "update": Writes.update,
    "delete": Writes.delete,
    "findAndModify": Writes.find_and_modify,
    "findandmodify": Writes.find_and_modify,
}
_SCHEMA: Mapping[str, Callable[[Schema, Arguments], Document | Answer]] = {
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
    """Carries out commands on one store."""

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
        """The reply, or the steps to it. Raises `MongoError` here or in a step."""
        name = next(iter(command), "")
        if name not in self._table:
            raise MongoError(Code.CommandNotFound, f"no such command: '{name}'")
        if "$db" not in command:
            raise MongoError(Code.IDLFailedToParse, "OP_MSG requests require a $db argument")
        _check_session(command)
        _check_concerns(command)
        return self._table[name](Arguments(name, command))

    def forget(self) -> None:
        """Forget all cursors: after a rollback, no cursor that was handed out before is valid."""
        self._cursors.clear()


def _check_session(command: Document) -> None:
    if "txnNumber" in command or "autocommit" in command or command.get("startTransaction"):
        raise MongoError(
            Code.IllegalOperation, "Transaction numbers are only allowed on a replica set member or mongos"
        )


def _check_concerns(command: Document) -> None:
    """One machine is its own majority, and what is acknowledged is in the journal."""
    write = command.get("writeConcern") or {}
    if isinstance(write.get("w"), int) and write["w"] > 1:
        raise MongoError(Code.BadValue, "cannot use 'w' > 1 when a host is not replicated")
    level = (command.get("readConcern") or {}).get("level", "local")
    if level not in _READ_CONCERNS:
        raise not_implemented(f"the read concern '{level}'")
