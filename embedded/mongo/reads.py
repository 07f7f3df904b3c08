"""The commands that read: find, count, distinct, aggregate, and the cursors they leave open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from embedded.mongo.aggregate import Flow, checked_sort, compile_pipeline
from embedded.mongo.arguments import Arguments
from embedded.mongo.collection import Collection, Found, Search
from embedded.mongo.cursors import FIRST_BATCH, Cursors, Outflow
from embedded.mongo.keys import encode
from embedded.mongo.match import compile_filter
from embedded.mongo.paths import MISSING, Document, values_at
from embedded.mongo.project import compile_projection
from embedded.mongo.steps import Answer, Steps
from embedded.mongo.store import Store


class Reads:
    def __init__(self, store: Store, cursors: Cursors) -> None:
        self._store = store
        self._cursors = cursors

    def find(self, command: Arguments) -> Answer:
        command.allow(
            "filter", "projection", "sort", "skip", "limit", "batchSize", "singleBatch", "hint", "allowDiskUse"
        )
        search = Search(
            command.optional("filter", dict, {}),
            checked_sort(command.optional("sort", dict, {})),
            command.count("skip"),
            command.count("limit"),
            command.any("hint"),
        )
        size = command.count("batchSize", FIRST_BATCH)
        single = command.flag("singleBatch") or 0 < search.limit <= size
        flow = _outgoing(self._found(command, "find", search), command.optional("projection", dict, {}))
        return (yield from self._cursors.first(_namespace(command, "find"), flow, size, single=single))

    def _found(self, command: Arguments, name: str, search: Search) -> Iterator[Found | None]:
        collection = self._collection(command, name)
        if collection is not None:
            return collection.find(search)
        compile_filter(search.query)
        return iter(())

    def _collection(self, command: Arguments, name: str) -> Collection | None:
        return self._store.get(command.db, command.required(name, str))

    def get_more(self, command: Arguments) -> Answer:
        command.allow("collection", "batchSize")
        namespace = f"{command.db}.{command.required('collection', str)}"
        return (
            yield from self._cursors.next(command.required("getMore", int), namespace, command.count("batchSize"))
        )

    def kill_cursors(self, command: Arguments) -> Document:
        command.allow("cursors")
        return self._cursors.kill(command.required("cursors", list))

    def count(self, command: Arguments) -> Answer:
        command.allow("query", "skip", "limit", "hint", "fields")
        skip, limit = command.count("skip"), command.count("limit")
        query = command.optional("query", dict, {})
        total = yield from self._total(self._collection(command, "count"), query, command.any("hint"))
        left = max(0, total - skip)
        return {"n": min(left, limit) if limit else left}

    @staticmethod
    def _total(collection: Collection | None, query: Document, hint: Any = None, limit: int = 0) -> Steps:
        total = 0
        if collection is None:
            compile_filter(query)
            return total
        for counted in collection.count(query, hint, limit):
            if counted is None:
                yield
            else:
                total = counted
        return total

    def distinct(self, command: Arguments) -> Answer:
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

    def aggregate(self, command: Arguments) -> Answer:
        command.allow("pipeline", "cursor", "hint", "allowDiskUse")
        options = Arguments("cursor", command.required("cursor", dict))
        options.allow("batchSize")
        flow = yield from self._pipeline(command, command.required("pipeline", list))
        outflow = ((document and _sized(document)) for document in flow)
        return (
            yield from self._cursors.first(
                _namespace(command, "aggregate"), outflow, options.count("batchSize", FIRST_BATCH)
            )
        )

    def _pipeline(self, command: Arguments, pipeline: list[Any]) -> Steps:
        """What the stages make of the documents. A `$match` and `$sort` at the start are the search's."""
        stages = compile_pipeline(pipeline)
        query: Document = {}
        sort: Document = {}
        if stages and stages[0][0] == "$match":
            query, stages = stages[0][1], stages[1:]
        hint = command.any("hint")
        if counting := _counting(stages):
            most, stages = counting
            total = yield from self._total(self._collection(command, "aggregate"), query, hint, most)
            return _run(_counted(stages[0], total), stages[1:])
        if stages and stages[0][0] == "$sort":
            sort, stages = stages[0][1], stages[1:]
        limit = _limit(stages)
        search = Search(query, checked_sort(sort), 0, limit, hint)
        found = self._found(command, "aggregate", search)
        return _run((None if one is None else one.document for one in found), stages)


def _namespace(command: Arguments, name: str) -> str:
    return f"{command.db}.{command.required(name, str)}"


def _outgoing(found: Iterator[Found | None], projection: Document) -> Outflow:
    """Without a projection the stored bytes go out as they are."""
    if not projection:
        return (None if one is None else (RawBSONDocument(one.body), len(one.body)) for one in found)
    chosen = compile_projection(projection)
    return (None if one is None else (chosen(one.document), len(one.body)) for one in found)


def _sized(document: Document) -> tuple[RawBSONDocument, int]:
    body = bson.encode(document)
    return RawBSONDocument(body), len(body)


def _run(flow: Flow, stages: list[Any]) -> Flow:
    for _name, _operand, stage in stages:
        flow = stage(flow)
    return flow


#: What drivers make of `count_documents`.
_COUNT_GROUP = {"_id": 1, "n": {"$sum": 1}}


def _limit(stages: list[Any]) -> int:
    return int(stages[0][1]) if stages and stages[0][0] == "$limit" else 0


def _counting(stages: list[Any]) -> tuple[int, list[Any]] | None:
    """How far to count, and the stages from the count on; `None` if something else comes first."""
    limit = _limit(stages)
    rest = stages[1:] if limit else stages
    return (limit, rest) if rest and _only_counts(rest[0]) else None


def _only_counts(stage: tuple[str, Any, Any]) -> bool:
    name, operand, _ = stage
    return name == "$count" or (name == "$group" and operand == _COUNT_GROUP)


def _counted(stage: tuple[str, Any, Any], total: int) -> Flow:
    name, operand, _ = stage
    if total:
        yield {operand: total} if name == "$count" else {"_id": 1, "n": total}
