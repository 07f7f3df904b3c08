"""What updates make of a document. `page` is the page of MongoDB's manual that the expectation comes from."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
from bson import ObjectId, Regex
from pymongo import DeleteOne, InsertOne, ReplaceOne, ReturnDocument, UpdateMany, UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

Document = dict[str, Any]
UPDATE = "https://www.mongodb.com/docs/manual/reference/operator/update/"
METHOD = "https://www.mongodb.com/docs/manual/reference/method/"


class Case(NamedTuple):
    page: str
    before: Document
    update: Document
    after: Document
    modified: int = 1


CASES = [
    Case(UPDATE + "set/", {"a": 1}, {"$set": {"a": 2, "b": 3}}, {"a": 2, "b": 3}),
    Case(UPDATE + "set/", {}, {"$set": {"a.b.c": 1}}, {"a": {"b": {"c": 1}}}),
    Case(UPDATE + "set/", {"l": [1, 2]}, {"$set": {"l.0": 9}}, {"l": [9, 2]}),
    Case(UPDATE + "set/", {"l": [{"x": 1}, {"x": 2}]}, {"$set": {"l.1.x": 9}}, {"l": [{"x": 1}, {"x": 9}]}),
    Case(UPDATE + "set/", {"l": [1]}, {"$set": {"l.3": 9}}, {"l": [1, None, None, 9]}),
    Case(UPDATE + "set/", {"a": 1}, {"$set": {"a": 1}}, {"a": 1}, modified=0),
    Case(UPDATE + "set/", {"a": 1}, {"$set": {}}, {"a": 1}, modified=0),
    Case(UPDATE + "unset/", {"a": 1, "b": 2}, {"$unset": {"a": ""}}, {"b": 2}),
    Case(UPDATE + "unset/", {"a": {"b": 1, "c": 2}}, {"$unset": {"a.b": ""}}, {"a": {"c": 2}}),
    Case(UPDATE + "unset/", {"l": [1, 2, 3]}, {"$unset": {"l.1": ""}}, {"l": [1, None, 3]}),
    Case(UPDATE + "unset/", {"a": 1}, {"$unset": {"b": "", "c.d": ""}}, {"a": 1}, modified=0),
    Case(UPDATE + "inc/", {"n": 1, "m": {"x": 2}}, {"$inc": {"n": 2, "m.x": -5}}, {"n": 3, "m": {"x": -3}}),
    Case(UPDATE + "inc/", {}, {"$inc": {"n": 4}}, {"n": 4}),
    Case(UPDATE + "inc/", {"n": 2**31 - 1}, {"$inc": {"n": 1}}, {"n": 2**31}),
    Case(UPDATE + "inc/", {"n": 1}, {"$inc": {"n": 0.5}}, {"n": 1.5}),
    Case(UPDATE + "inc/", {"n": 1}, {"$inc": {"n": 0}}, {"n": 1}, modified=0),
    Case(UPDATE + "inc/", {"n": 1}, {"$inc": {"n": math.inf}}, {"n": math.inf}),
    Case(UPDATE + "max/", {"n": math.nan}, {"$max": {"n": -math.inf}}, {"n": -math.inf}),
    Case(UPDATE + "min/", {"n": 5}, {"$min": {"n": 3}}, {"n": 3}),
    Case(UPDATE + "min/", {"n": 5}, {"$min": {"n": 7, "m": 7}}, {"n": 5, "m": 7}),
    Case(UPDATE + "max/", {"n": 5}, {"$max": {"n": 7}}, {"n": 7}),
    Case(UPDATE + "max/", {"n": 5}, {"$max": {"n": 3}}, {"n": 5}, modified=0),
    # strings sort after numbers
    Case(UPDATE + "max/", {"n": 5}, {"$max": {"n": "a"}}, {"n": "a"}),
    Case(UPDATE + "setOnInsert/", {"a": 1}, {"$setOnInsert": {"a": 2, "b": 2}}, {"a": 1}, modified=0),
    Case(UPDATE + "push/", {"l": [1]}, {"$push": {"l": 2}}, {"l": [1, 2]}),
    Case(UPDATE + "push/", {}, {"$push": {"l": 2}}, {"l": [2]}),
    Case(UPDATE + "push/", {"l": [1]}, {"$push": {"l": [2, 3]}}, {"l": [1, [2, 3]]}),
    Case(UPDATE + "each/", {"l": [1]}, {"$push": {"l": {"$each": [2, 3]}}}, {"l": [1, 2, 3]}),
    Case(UPDATE + "slice/", {"l": [1, 2]}, {"$push": {"l": {"$each": [3, 4], "$slice": -3}}}, {"l": [2, 3, 4]}),
    Case(UPDATE + "slice/", {"l": [1, 2]}, {"$push": {"l": {"$each": [3, 4], "$slice": 3}}}, {"l": [1, 2, 3]}),
    Case(UPDATE + "slice/", {"l": [1, 2]}, {"$push": {"l": {"$each": [3], "$slice": 0}}}, {"l": []}),
    Case(UPDATE + "addToSet/", {"l": [1]}, {"$addToSet": {"l": 2}}, {"l": [1, 2]}),
    Case(UPDATE + "addToSet/", {"l": [1, 2]}, {"$addToSet": {"l": 2}}, {"l": [1, 2]}, modified=0),
    Case(UPDATE + "addToSet/", {}, {"$addToSet": {"l": 2}}, {"l": [2]}),
    Case(UPDATE + "addToSet/", {"l": [1]}, {"$addToSet": {"l": {"$each": [1, 2, 2]}}}, {"l": [1, 2]}),
    Case(UPDATE + "addToSet/", {"l": [{"a": 1}]}, {"$addToSet": {"l": {"a": 1}}}, {"l": [{"a": 1}]}, modified=0),
    Case(UPDATE, {"a": 1, "b": 2}, {"$set": {"c": 3}, "$unset": {"a": ""}, "$inc": {"b": 1}}, {"b": 3, "c": 3}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.before} {case.update}")
def test_an_update_makes_what_the_manual_says(collection: Collection[Document], case: Case) -> None:
    collection.insert_one({"_id": 1, **case.before})

    result = collection.update_one({"_id": 1}, case.update)

    assert collection.find_one({}) == {"_id": 1, **case.after}
    assert (result.matched_count, result.modified_count) == (1, case.modified)


def test_new_fields_come_in_the_order_of_their_names(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/operator/update/#behavior
    collection.insert_one({"_id": 1, "z": 0})
    collection.update_one({"_id": 1}, {"$set": {"c": 1, "a": 1}, "$inc": {"b": 1}})
    assert list(collection.find_one({}) or {}) == ["_id", "z", "a", "b", "c"]


def test_a_replacement_keeps_the_id_and_nothing_else(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/method/db.collection.replaceOne/
    collection.insert_one({"_id": 1, "a": 1, "b": 2})
    assert collection.replace_one({"a": 1}, {"c": 3}).modified_count == 1
    assert collection.find_one({}) == {"_id": 1, "c": 3}


def test_a_multi_update_changes_every_match_once_even_if_it_moves_it_along_the_index(
    collection: Collection[Document],
) -> None:
    # https://www.mongodb.com/docs/manual/reference/method/db.collection.updateMany/
    collection.create_index("n")
    collection.insert_many([{"_id": number, "n": number} for number in range(100)])
    result = collection.update_many({"n": {"$gte": 50}}, {"$inc": {"n": 30}})
    assert (result.matched_count, result.modified_count) == (50, 50)
    assert sorted(found["n"] for found in collection.find()) == [*range(50), *range(80, 130)]


class Upsert(NamedTuple):
    query: Document
    update: Document
    inserted: Document


UPSERTS = [
    Upsert({"_id": 5}, {"$set": {"a": 1}}, {"_id": 5, "a": 1}),
    Upsert({"_id": 5, "k": "x"}, {"$setOnInsert": {"a": 1}, "$inc": {"n": 2}}, {"_id": 5, "k": "x", "a": 1, "n": 2}),
    Upsert({"_id": 5, "a.b": 1, "c": {"$eq": "z"}}, {"$set": {"d": 2}}, {"_id": 5, "a": {"b": 1}, "c": "z", "d": 2}),
    Upsert({"_id": 5, "n": {"$gt": 7}, "m": {"$exists": False}}, {"$set": {"d": 2}}, {"_id": 5, "d": 2}),
    Upsert({"$and": [{"_id": 5}, {"k": 1}]}, {"$set": {"d": 2}}, {"_id": 5, "k": 1, "d": 2}),
    Upsert({"_id": 5}, {"$push": {"l": 1}}, {"_id": 5, "l": [1]}),
    Upsert({"$or": [{"_id": 5, "k": 1}]}, {"$set": {"d": 2}}, {"_id": 5, "k": 1, "d": 2}),
    Upsert({"_id": 5, "$or": [{"k": 1}, {"k": 2}]}, {"$set": {"d": 2}}, {"_id": 5, "d": 2}),
    Upsert({"$and": [{"$or": [{"_id": 5}]}, {"$and": [{"k": 1}]}]}, {"$set": {"d": 2}}, {"_id": 5, "k": 1, "d": 2}),
    Upsert({"_id": {"$in": [5]}, "k": {"$in": [1, 2]}}, {"$set": {"d": 2}}, {"_id": 5, "d": 2}),
    Upsert({"_id": 5, "s": Regex("x")}, {"$set": {"d": 2}}, {"_id": 5, "d": 2}),
    Upsert({"_id": 5, "$nor": [{"k": 1}]}, {"$set": {"d": 2}}, {"_id": 5, "d": 2}),
]


@pytest.mark.parametrize("case", UPSERTS, ids=str)
def test_an_upsert_inserts_the_equalities_of_the_filter_and_the_update(
    collection: Collection[Document], case: Upsert
) -> None:
    # https://www.mongodb.com/docs/manual/reference/method/db.collection.updateOne/#upsert-with-operator-expressions
    result = collection.update_one(case.query, case.update, upsert=True)
    assert (result.upserted_id, result.matched_count, result.modified_count) == (5, 0, 0)
    assert collection.find_one({}) == case.inserted
    again = collection.update_one({"_id": 5}, {"$setOnInsert": {"never": 1}}, upsert=True)
    assert (again.upserted_id, again.matched_count, again.modified_count) == (None, 1, 0)


def test_an_upsert_without_an_id_gets_an_object_id_and_a_replacement_keeps_only_the_id_of_the_filter(
    collection: Collection[Document],
) -> None:
    # https://www.mongodb.com/docs/manual/reference/method/db.collection.replaceOne/
    assert isinstance(collection.update_one({"k": 1}, {"$set": {"a": 1}}, upsert=True).upserted_id, ObjectId)
    assert collection.replace_one({"_id": "z", "k": 2}, {"q": 1}, upsert=True).upserted_id == "z"
    assert collection.find_one({"_id": "z"}) == {"_id": "z", "q": 1}


# --- https://www.mongodb.com/docs/manual/reference/command/findAndModify/


def test_find_and_update_takes_the_first_of_the_sort_and_answers_before_or_after(
    collection: Collection[Document],
) -> None:
    collection.insert_many([{"_id": number, "p": number % 5, "s": "q"} for number in range(20)])
    update, sort = {"$set": {"s": "r"}}, [("p", -1), ("_id", 1)]
    after = collection.find_one_and_update({"s": "q"}, update, sort=sort, return_document=ReturnDocument.AFTER)
    before = collection.find_one_and_update({"s": "q"}, update, sort=sort)
    assert (after, before) == ({"_id": 4, "p": 4, "s": "r"}, {"_id": 9, "p": 4, "s": "q"})
    assert collection.find_one_and_update({"s": "x"}, update) is None


def test_find_and_update_upserts_and_projects(collection: Collection[Document]) -> None:
    update = {"$set": {"a": 1}, "$setOnInsert": {"c": 0}}
    new = collection.find_one_and_update(
        {"_id": 1}, update, upsert=True, return_document=ReturnDocument.AFTER, projection={"_id": 0}
    )
    assert new == {"a": 1, "c": 0}
    assert collection.find_one_and_update({"_id": 2}, update, upsert=True) is None
    assert collection.count_documents({}) == 2


def test_find_and_replace(collection: Collection[Document]) -> None:
    collection.insert_one({"_id": 1, "a": 1})
    replaced = collection.find_one_and_replace({"_id": 1}, {"b": 1}, return_document=ReturnDocument.AFTER)
    assert replaced == {"_id": 1, "b": 1}


# --- https://www.mongodb.com/docs/manual/reference/method/db.collection.bulkWrite/


def test_an_ordered_bulk_write_counts_everything_and_stops_at_the_first_error(
    collection: Collection[Document],
) -> None:
    result = collection.bulk_write(
        [
            InsertOne({"_id": 1}),
            UpdateOne({"_id": 1}, {"$set": {"a": 1}}),
            UpdateOne({"_id": 2}, {"$set": {"a": 2}}, upsert=True),
            ReplaceOne({"_id": 3}, {"z": 1}, upsert=True),
            DeleteOne({"_id": 1}),
            UpdateMany({}, {"$inc": {"c": 1}}),
        ]
    )
    counts = (result.inserted_count, result.matched_count, result.modified_count, result.deleted_count)
    assert (counts, result.upserted_ids) == ((1, 3, 3, 1), {2: 2, 3: 3})
    with pytest.raises(BulkWriteError) as caught:
        collection.bulk_write([InsertOne({"_id": 10}), InsertOne({"_id": 10}), InsertOne({"_id": 11})])
    assert [(error["index"], error["code"]) for error in caught.value.details["writeErrors"]] == [(1, 11000)]
    assert sorted(found["_id"] for found in collection.find()) == [2, 3, 10]


def test_an_unordered_bulk_write_goes_on_after_errors(collection: Collection[Document]) -> None:
    collection.create_index("h", unique=True)
    with pytest.raises(BulkWriteError) as caught:
        collection.bulk_write([InsertOne({"h": number % 5}) for number in range(20)], ordered=False)
    assert caught.value.details["nInserted"] == 5
    assert [error["index"] for error in caught.value.details["writeErrors"]] == list(range(5, 20))


def test_deletes_take_one_or_all(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/command/delete/
    collection.insert_many([{"_id": number, "g": number % 2} for number in range(6)])
    assert collection.delete_one({"g": 1}).deleted_count == 1
    assert collection.delete_many({"_id": {"$in": [0, 2, 99]}}).deleted_count == 2
    assert collection.delete_many({"g": 7}).deleted_count == 0
    assert sorted(found["_id"] for found in collection.find()) == [3, 4, 5]
