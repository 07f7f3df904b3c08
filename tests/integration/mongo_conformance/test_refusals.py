"""What MongoDB refuses, and by which code: the embedded server refuses it alike."""

from __future__ import annotations

import math
from typing import Any

import pytest
from bson import Regex
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, OperationFailure, WriteError

Document = dict[str, Any]
CODES = "https://www.mongodb.com/docs/manual/reference/error-codes/"
QUERY = "https://www.mongodb.com/docs/manual/reference/operator/query/"
UPDATE = "https://www.mongodb.com/docs/manual/reference/operator/update/"

FILTERS: list[tuple[str, Document, int]] = [
    (QUERY, {"$foo": 1}, 2),
    (QUERY, {"a": {"$foo": 1}}, 2),
    (QUERY + "and/", {"$and": []}, 2),
    (QUERY + "or/", {"$or": {"a": 1}}, 2),
    (QUERY + "in/", {"a": {"$in": 1}}, 2),
    (QUERY + "in/", {"a": {"$in": [{"$gt": 1}]}}, 2),
    (QUERY + "nin/", {"a": {"$nin": 1}}, 2),
    (QUERY + "regex/", {"a": {"$regex": "("}}, 51091),
    (QUERY + "regex/", {"a": {"$regex": "a", "$options": "q"}}, 51108),
    (QUERY + "regex/", {"a": {"$regex": "a\0b"}}, 2),
    (QUERY + "regex/", {"a": {"$regex": "a", "$options": "i\0"}}, 2),
    (QUERY + "gt/", {"a": {"$gt": Regex("a")}}, 2),
]


@pytest.mark.parametrize(("page", "query", "code"), FILTERS, ids=lambda value: str(value)[-60:])
def test_a_filter_that_is_none_is_refused(
    collection: Collection[Document], page: str, query: Document, code: int
) -> None:
    with pytest.raises(OperationFailure) as caught:
        collection.find_one(query)
    assert caught.value.code == code
    collection.insert_one({"a": 1})
    with pytest.raises(OperationFailure) as caught:
        collection.delete_many(query)
    assert caught.value.code == code


UPDATES: list[tuple[str, Document, int]] = [
    (UPDATE, {"$foo": {"a": 1}}, 9),
    (UPDATE, {"$set": {"a": 1}, "b": 1}, 9),
    (UPDATE, {"$set": 1}, 9),
    (UPDATE + "set/", {"$set": {"n.x": 1}}, 28),
    (UPDATE + "set/", {"$set": {"l.x": 1}}, 28),
    (UPDATE + "set/", {"$set": {"_id": 2}}, 66),
    (UPDATE + "inc/", {"$inc": {"s": 1}}, 14),
    (UPDATE + "inc/", {"$inc": {"n": "1"}}, 14),
    (UPDATE + "inc/", {"$inc": {"big": 1}}, 2),
    (UPDATE + "push/", {"$push": {"n": 1}}, 2),
    (UPDATE + "addToSet/", {"$addToSet": {"n": 1}}, 2),
    (UPDATE, {"$set": {"a": 1}, "$inc": {"a": 1}}, 40),
    (UPDATE, {"$set": {"a": 1}, "$unset": {"a.b": ""}}, 40),
]


@pytest.mark.parametrize(("page", "update", "code"), UPDATES, ids=lambda value: str(value)[-60:])
def test_an_update_that_cannot_be_is_refused_and_changes_nothing(
    collection: Collection[Document], page: str, update: Document, code: int
) -> None:
    document = {"_id": 1, "n": 1, "s": "x", "l": [1], "big": 2**63 - 1}
    collection.insert_one(dict(document))
    with pytest.raises(WriteError) as caught:
        collection.update_one({"_id": 1}, update)
    assert caught.value.code == code
    assert collection.find_one({}) == document


@pytest.mark.parametrize(
    "query",
    [{"a": 1, "$and": [{"a": 2}]}, {"a": {"b": 1}, "a.b": 1}, {"$or": [{"a": 1}], "a": {"$in": [1]}}],
    ids=str,
)
def test_an_upsert_from_a_filter_that_says_a_field_twice_is_refused(
    collection: Collection[Document], query: Document
) -> None:
    # https://www.mongodb.com/docs/manual/reference/method/db.collection.updateOne/#upsert-with-operator-expressions
    with pytest.raises(WriteError) as caught:
        collection.update_one(query, {"$set": {"z": 1}}, upsert=True)
    assert caught.value.code == 54
    assert collection.find_one({}) is None


COMMANDS: list[tuple[str, Document, int, str]] = [
    (CODES, {"fooBar": 1}, 59, "CommandNotFound"),
    (CODES, {"find": "c", "filter": 1}, 14, "TypeMismatch"),
    (CODES, {"find": "c", "sort": {"a": math.nan}}, 15975, "Location15975"),
    (CODES, {"aggregate": "c", "pipeline": [{"$foo": 1}], "cursor": {}}, 40324, "Location40324"),
    (CODES, {"aggregate": "c", "pipeline": [{"$match": {}, "$limit": 1}], "cursor": {}}, 40323, "Location40323"),
    (CODES, {"getMore": 12345678901, "collection": "c"}, 43, "CursorNotFound"),
    (CODES, {"findAndModify": "c", "query": {}}, 9, "FailedToParse"),
    (CODES, {"dropIndexes": "nowhere", "index": "*"}, 26, "NamespaceNotFound"),
    (CODES, {"find": "c", "projection": {"a": 1, "b": 0}}, 31254, "Location31254"),
    (CODES, {"find": "c", "projection": {"a": 0, "b": 1}}, 31253, "Location31253"),
]


@pytest.mark.parametrize(("page", "command", "code", "name"), COMMANDS, ids=lambda value: str(value)[-60:])
def test_a_command_that_is_none_is_refused_by_code_and_name(
    collection: Collection[Document], page: str, command: Document, code: int, name: str
) -> None:
    with pytest.raises(OperationFailure) as caught:
        collection.database.command(command)
    assert caught.value.code == code
    assert (caught.value.details or {})["codeName"] == name


def test_an_array_is_no_id(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/core/document/#the-_id-field
    with pytest.raises(WriteError) as caught:
        collection.insert_one({"_id": [1]})
    assert caught.value.code == 53


def test_a_document_that_grows_beyond_16_megabytes_is_refused(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/limits/#mongodb-limit-BSON-Document-Size
    collection.insert_one({"_id": 1, "text": "x" * 16_000_000})
    with pytest.raises(OperationFailure):
        collection.update_one({"_id": 1}, {"$set": {"more": "x" * 1_000_000}})
    assert (collection.find_one({}, {"text": 0})) == {"_id": 1}


def test_a_replacement_of_many_is_refused(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/command/update/
    collection.insert_one({"_id": 1})
    statement = {"q": {}, "u": {"a": 1}, "multi": True}
    reply = collection.database.command({"update": collection.name, "updates": [statement]}, check=False)
    assert reply["writeErrors"][0]["code"] == 9


def test_every_refused_statement_is_reported_with_its_position(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/method/db.collection.insertMany/
    with pytest.raises(BulkWriteError) as caught:
        collection.insert_many([{"_id": 1}, {"_id": 1}, {"_id": [2]}, {"_id": 3}], ordered=False)
    assert [(error["index"], error["code"]) for error in caught.value.details["writeErrors"]] == [(1, 11000), (2, 53)]
    assert caught.value.details["nInserted"] == 2
