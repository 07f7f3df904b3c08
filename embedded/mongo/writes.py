"""The commands that write: insert, update, delete and findAndModify."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bson import ObjectId

from embedded.mongo.arguments import CommandArguments
from embedded.mongo.collection import Collection, FoundDocument, Search, decode
from embedded.mongo.cursors import Answer, Steps
from embedded.mongo.errors import Code, MongoError
from embedded.mongo.match import compile_filter
from embedded.mongo.paths import Document
from embedded.mongo.plan import checked_sort
from embedded.mongo.projection import compile_projection
from embedded.mongo.store import Store
from embedded.mongo.update import Update

MAX_STATEMENTS = 100_000


class Writes:
    def __init__(self, store: Store) -> None:
        self._store = store

    def insert(self, command: CommandArguments) -> Answer:
        command.allow("documents", "ordered")
        documents = _checked_size(command.required("documents", list))
        name = command.required("insert", str)

        def insert_one(document: Any) -> Steps:
            yield
            if not isinstance(document, dict):
                raise MongoError(Code.TypeMismatch, "BSON field 'insert.documents' must hold objects")
            collection = self._store.get_or_create(command.db, name)
            self._store.begin()
            collection.insert(_with_id_first(document))
            return 1

        done, errors = yield from _each(documents, insert_one, ordered=command.flag("ordered", default=True))
        return _reply({"n": len(done)}, errors)

    def update(self, command: CommandArguments) -> Answer:
        command.allow("updates", "ordered")
        statements = _checked_size(list(command.statements("updates")))
        name = command.required("update", str)

        def update_one(statement: CommandArguments) -> Steps:
            statement.allow("q", "u", "multi", "upsert", "sort")
            return (yield from self._update(command.db, name, statement))

        done, errors = yield from _each(statements, update_one, ordered=command.flag("ordered", default=True))
        upserted = [{"index": index, "_id": result[2]["_id"]} for index, result in done if result[2] is not None]
        reply: Document = {
            "n": sum(result[0] for _, result in done) + len(upserted),
            "nModified": sum(result[1] for _, result in done),
        }
        return _reply(reply | ({"upserted": upserted} if upserted else {}), errors)

    def _update(self, db: str, name: str, statement: CommandArguments) -> Steps:
        """Run one statement. Returns how many documents matched, how many changed, and the id of an upserted one."""
        update = Update(statement.any("u") or statement.required("u", dict))
        query, multi = statement.required("q", dict), statement.flag("multi")
        if multi and update.is_replacement:
            raise MongoError(Code.FailedToParse, "multi update is not supported for replacement-style update")
        if multi and statement.any("sort"):
            raise MongoError(Code.FailedToParse, "Cannot specify sort with multi=true")
        search = Search(query, _sort_of(statement))
        collection = self._store.get(db, name)
        if multi:
            matched, modified = yield from self._update_all(collection, search, update)
        else:
            found = yield from _first(collection, search)
            matched = 0 if found is None else 1
            modified = int(found is not None and self._change(collection, found, update)[0])
        if matched or not statement.flag("upsert"):
            return matched, modified, None
        return matched, modified, self._upsert(db, name, query, update)

    def _update_all(self, collection: Collection | None, search: Search, update: Update) -> Steps:
        """Update every match once. After an update has moved a document in the index, the walk may come to it
        again.
        """
        changed: set[int] = set()
        matched = modified = 0
        for found in _find(collection, search):
            if found is None:
                yield
            elif found.doc not in changed:
                matched += 1
                changed.add(found.doc)
                modified += self._change(collection, found, update)[0]
        return matched, modified

    def _change(self, collection: Collection | None, found: FoundDocument, update: Update) -> tuple[bool, Document]:
        """Update one document. Returns whether it changed, and the new document."""
        if collection is None:  # pragma: no cover - what was found is in a collection
            raise MongoError(Code.NamespaceNotFound, "ns not found")
        new = update.apply(decode(found.body))
        self._store.begin()
        return collection.replace(found, new), new

    def _upsert(self, db: str, name: str, query: Document, update: Update) -> Document:
        new = update.new_document(query)
        collection = self._store.get_or_create(db, name)
        self._store.begin()
        collection.insert(new)
        return new

    def delete(self, command: CommandArguments) -> Answer:
        command.allow("deletes", "ordered")
        statements = _checked_size(list(command.statements("deletes")))
        name = command.required("delete", str)

        def delete_one(statement: CommandArguments) -> Steps:
            statement.allow("q", "limit")
            search = Search(statement.required("q", dict))
            limit = statement.required("limit", int)
            if limit not in (0, 1):
                raise MongoError(Code.FailedToParse, f"The limit field in delete objects must be 0 or 1. Got {limit}")
            return (yield from self._delete(command.db, name, search, one=limit == 1))

        done, errors = yield from _each(statements, delete_one, ordered=command.flag("ordered", default=True))
        return _reply({"n": sum(count for _, count in done)}, errors)

    def _delete(self, db: str, name: str, search: Search, *, one: bool) -> Steps:
        """How many documents were deleted."""
        collection, deleted = self._store.get(db, name), 0
        if collection is None:
            compile_filter(search.query)
            return deleted
        for found in collection.find(search):
            if found is None:
                yield
                continue
            self._store.begin()
            collection.remove(found)
            deleted += 1
            if one:
                break
        return deleted

    def find_and_modify(self, command: CommandArguments) -> Answer:
        command.allow("findAndModify", "findandmodify", "query", "sort", "update", "new", "fields", "upsert")
        new, update = command.flag("new"), Update(command.any("update"))
        name = command.any("findAndModify") or command.required("findandmodify", str)
        fields = compile_projection(command.optional("fields", dict, {}))
        query = command.optional("query", dict, {})
        collection = self._store.get(command.db, name)
        found = yield from _first(collection, Search(query, _sort_of(command)))
        if found is not None:
            _, changed = self._change(collection, found, update)
            value = fields(changed if new else found.document)
            return {"lastErrorObject": {"n": 1, "updatedExisting": True}, "value": value}
        if command.flag("upsert"):
            inserted = self._upsert(command.db, name, query, update)
            outcome = {"n": 1, "updatedExisting": False, "upserted": inserted["_id"]}
            return {"lastErrorObject": outcome, "value": fields(inserted) if new else None}
        return {"lastErrorObject": {"n": 0, "updatedExisting": False}, "value": None}


def _sort_of(statement: CommandArguments) -> list[tuple[str, int]]:
    return list(checked_sort(statement.optional("sort", dict, {})))


def _find(collection: Collection | None, search: Search) -> Any:
    if collection is not None:
        return collection.find(search)
    compile_filter(search.query)
    return iter(())


def _first(collection: Collection | None, search: Search) -> Steps:
    """The first match in its current state: the search is repeated if another command has changed the document
    meanwhile.
    """
    while True:
        first = None
        for found in _find(collection, search._replace(limit=1)):
            if found is None:
                yield
            else:
                first = found
        if first is None or collection is None or collection.is_current(first):
            return first


def _each(statements: list[Any], run: Callable[[Any], Steps], *, ordered: bool) -> Steps:
    """Run the statements. Returns the results by index, and the write errors. An ordered command stops after an
    error.
    """
    done: list[tuple[int, Any]] = []
    errors: list[Document] = []
    for index, statement in enumerate(statements):
        try:
            done.append((index, (yield from run(statement))))
        except MongoError as error:
            errors.append(error.as_write_error(index))
            if ordered:
                break
    return done, errors


def _reply(counts: Document, errors: list[Document]) -> Document:
    return counts | ({"writeErrors": errors} if errors else {})


def _checked_size(statements: list[Any]) -> list[Any]:
    if not 0 < len(statements) <= MAX_STATEMENTS:
        raise MongoError(
            Code.InvalidLength,
            f"Write batch sizes must be between 1 and {MAX_STATEMENTS}. Got {len(statements)} operations.",
        )
    return statements


def _with_id_first(document: Document) -> Document:
    if next(iter(document), None) == "_id":
        return document
    return {"_id": ObjectId(), **document}
