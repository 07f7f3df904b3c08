"""The commands about collections and their indexes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import bson
from bson import Int64

from embedded.mongo.arguments import Arguments
from embedded.mongo.collection import Collection
from embedded.mongo.cursors import FIRST_BATCH, Answer, Cursors, Outflow
from embedded.mongo.errors import Code, MongoError
from embedded.mongo.index import ID_INDEX, IndexSpec
from embedded.mongo.match import compile_filter
from embedded.mongo.paths import Document
from embedded.mongo.store import Store


class Schema:
    def __init__(self, store: Store, cursors: Cursors) -> None:
        self._store = store
        self._cursors = cursors

    def create_indexes(self, command: Arguments) -> Document:
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

    def list_indexes(self, command: Arguments) -> Answer:
        command.allow("cursor")
        collection = self._existing(command, "listIndexes")
        specs = [index.spec.to_document() for index in collection.indexes.values()]
        return self._listing(command, collection.namespace, specs)

    def drop_indexes(self, command: Arguments) -> Document:
        command.allow("index")
        collection = self._existing(command, "dropIndexes")
        before = len(collection.indexes)
        for name in _names(collection, command.any("index")):
            self._store.drop_index(collection, name)
        return {"nIndexesWas": before}

    def list_collections(self, command: Arguments) -> Answer:
        command.allow("filter", "nameOnly", "authorizedCollections", "cursor")
        matches = compile_filter(command.optional("filter", dict, {}))
        shown = (
            {"name": name, "type": "collection"} for db, name in sorted(self._store.collections) if db == command.db
        )
        details = {} if command.flag("nameOnly") else {"options": {}, "info": {"readOnly": False}}
        listed = [document | details for document in shown if matches(document)]
        return self._listing(command, f"{command.db}.$cmd.listCollections", listed)

    def list_databases(self, command: Arguments) -> Document:
        command.allow("filter", "nameOnly", "authorizedDatabases")
        matches = compile_filter(command.optional("filter", dict, {}))
        shown = [{"name": name} for name in sorted({db for db, _ in self._store.collections})]
        sizes = {} if command.flag("nameOnly") else {"sizeOnDisk": Int64(self._size()), "empty": False}
        databases = [document | sizes for document in shown if matches(document)]
        return {"databases": databases} | ({} if command.flag("nameOnly") else {"totalSize": Int64(self._size())})

    def _size(self) -> int:
        """The size of the one file that holds all databases."""
        return self._store.path.stat().st_size

    def drop(self, command: Arguments) -> Document:
        command.allow()
        collection = self._existing(command, "drop")
        count = len(collection.indexes)
        self._store.drop(command.db, command.required("drop", str))
        return {"nIndexesWas": count, "ns": collection.namespace}

    def drop_database(self, command: Arguments) -> Document:
        command.allow()
        names = [name for db, name in self._store.collections if db == command.db]
        for name in names:
            self._store.drop(command.db, name)
        return {"dropped": command.db} if names else {}

    def _existing(self, command: Arguments, name: str) -> Collection:
        collection = self._store.get(command.db, command.required(name, str))
        if collection is None:
            raise MongoError(Code.NamespaceNotFound, f"ns does not exist: {command.db}.{command.any(name)}")
        return collection

    def _listing(self, command: Arguments, namespace: str, documents: Iterable[Document]) -> Answer:
        options = Arguments("cursor", command.optional("cursor", dict, {}))
        options.allow("batchSize")
        flow: Outflow = ((document, len(bson.encode(document))) for document in documents)
        return self._cursors.first(namespace, flow, options.count("batchSize", FIRST_BATCH))


def _exists(collection: Collection, spec: IndexSpec) -> bool:
    """Whether it exists. Raises `IndexOptionsConflict` or `IndexKeySpecsConflict` if there is a similar index."""
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
    """Names of indexes: by name, by key, or with `*` all but `_id`. Raises `IndexNotFound`, `InvalidOptions`."""
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
