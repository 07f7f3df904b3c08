"""The commands that read: find, count, distinct, the aggregate that counts, and the commands for open cursors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bson import Int64
from bson.raw_bson import RawBSONDocument

from embedded.mongo.arguments import CommandArguments
from embedded.mongo.collection import Collection, FoundDocument, Search
from embedded.mongo.cursors import FIRST_BATCH, Answer, Cursors, Outflow, Steps
from embedded.mongo.errors import Code, MongoError, not_implemented
from embedded.mongo.keys import encode
from embedded.mongo.match import compile_filter
from embedded.mongo.paths import MISSING, Document, values_at
from embedded.mongo.plan import checked_sort
from embedded.mongo.projection import compile_projection
from embedded.mongo.store import Store


class Reads:
    def __init__(self, store: Store, cursors: Cursors) -> None:
        self._store = store
        self._cursors = cursors

    def find(self, command: CommandArguments) -> Answer:
        command.allow("filter", "projection", "sort", "skip", "limit", "batchSize", "singleBatch", "allowDiskUse")
        search = Search(
            command.optional("filter", dict, {}),
            checked_sort(command.optional("sort", dict, {})),
            command.count("skip"),
            command.count("limit"),
        )
        size = command.count("batchSize", FIRST_BATCH)
        flow = _outgoing(self._found(command, "find", search), command.optional("projection", dict, {}))
        namespace, single = _namespace(command, "find"), command.flag("singleBatch")
        return (yield from self._cursors.first(namespace, flow, size, single=single, limit=search.limit))

    def _found(self, command: CommandArguments, name: str, search: Search) -> Iterator[FoundDocument | None]:
        collection = self._collection(command, name)
        if collection is not None:
            return collection.find(search)
        compile_filter(search.query)
        return iter(())

    def _collection(self, command: CommandArguments, name: str) -> Collection | None:
        return self._store.get(command.db, command.required(name, str))

    def get_more(self, command: CommandArguments) -> Answer:
        command.allow("collection", "batchSize")
        namespace = f"{command.db}.{command.required('collection', str)}"
        return (
            yield from self._cursors.next(command.required("getMore", int), namespace, command.count("batchSize"))
        )

    def kill_cursors(self, command: CommandArguments) -> Document:
        command.allow("cursors")
        return self._cursors.kill(command.required("cursors", list))

    def count(self, command: CommandArguments) -> Answer:
        command.allow("query", "skip", "limit", "fields")
        skip, limit = command.count("skip"), command.count("limit")
        query = command.optional("query", dict, {})
        total = yield from self._total(self._collection(command, "count"), query)
        left = max(0, total - skip)
        return {"n": min(left, limit) if limit else left}

    @staticmethod
    def _total(collection: Collection | None, query: Document, limit: int = 0) -> Steps:
        total = 0
        if collection is None:
            compile_filter(query)
            return total
        for counted in collection.count(query, limit):
            if counted is None:
                yield
            else:
                total = counted
        return total

    def distinct(self, command: CommandArguments) -> Answer:
        command.allow("key", "query")
        path = tuple(command.required("key", str).split("."))
        values: dict[bytes, Any] = {}
        for found in self._found(command, "distinct", Search(command.optional("query", dict, {}))):
            if found is None:
                yield
                continue
            for value in values_at(found.document, path):
                for one in value if isinstance(value, list) else [value]:
                    if one is not MISSING:
                        values.setdefault(encode(one), one)
        return {"values": list(values.values())}

    def aggregate(self, command: CommandArguments) -> Answer:
        """Run the pipeline that drivers send for `count_documents`; other pipelines are refused."""
        command.allow("pipeline", "cursor", "allowDiskUse")
        options = CommandArguments("cursor", command.required("cursor", dict))
        options.allow("batchSize")
        query, skip, limit = _counting(command.required("pipeline", list))
        collection = self._collection(command, "aggregate")
        total = (yield from self._total(collection, query, skip + limit if limit else 0)) - skip
        counted = [{"_id": 1, "n": total}] if total > 0 else []
        return {"cursor": {"firstBatch": counted, "id": Int64(0), "ns": _namespace(command, "aggregate")}}


def _namespace(command: CommandArguments, name: str) -> str:
    return f"{command.db}.{command.required(name, str)}"


def _outgoing(found: Iterator[FoundDocument | None], projection: Document) -> Outflow:
    """The documents for the answer, with the projection applied. Without one, the stored bytes are
    sent as they are.
    """
    if not projection:
        return (None if one is None else (RawBSONDocument(one.body), len(one.body)) for one in found)
    chosen = compile_projection(projection)
    return (None if one is None else (chosen(one.document), len(one.body)) for one in found)


#: The last stage that drivers send for `count_documents`, after a `$match` and perhaps `$skip` and `$limit`.
_COUNT = {"$group": {"_id": 1, "n": {"$sum": 1}}}
STAGES = ("$match", "$skip", "$limit", "$group")


def _counting(pipeline: list[Any]) -> tuple[Document, int, int]:
    """The filter, how many documents to skip, and the limit (0 is none). Raises for any other pipeline."""
    names = [_stage_name(stage) for stage in pipeline]
    if pipeline[-1:] != [_COUNT] or names != [name for name in STAGES if name in names]:
        raise not_implemented("a pipeline other than the one of count_documents")
    options = CommandArguments("aggregate", {name: stage[name] for name, stage in zip(names, pipeline, strict=True)})
    limit = options.count("$limit")
    if "$limit" in names and not limit:
        raise MongoError(Code.Location15958, "the limit must be positive")
    return options.optional("$match", dict, {}), options.count("$skip"), limit


def _stage_name(stage: Any) -> str:
    if not isinstance(stage, dict):
        raise MongoError(Code.TypeMismatch, "Each element of the 'pipeline' array must be an object")
    if len(stage) != 1:
        raise MongoError(Code.Location40323, "A pipeline stage specification object must contain exactly one field.")
    name = next(iter(stage))
    if name not in STAGES:
        raise MongoError(Code.Location40324, f"Unrecognized pipeline stage name: '{name}'")
    return str(name)
