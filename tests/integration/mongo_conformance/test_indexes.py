"""What indexes promise: uniqueness and what is in them; and how they are made, listed and dropped."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from bson import Regex
from pymongo import IndexModel
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError, OperationFailure

Document = dict[str, Any]
INDEX = "https://www.mongodb.com/docs/manual/core/"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Case(NamedTuple):
    page: str
    index: IndexModel
    #: They live together.
    accepted: list[Document]
    #: The key of this one is taken.
    refused: Document


def unique(keys: Any, **options: Any) -> IndexModel:
    return IndexModel(keys, unique=True, **options)


CASES = [
    Case(INDEX + "index-unique/", unique("k"), [{"k": 1}, {"k": "1"}, {"k": 2}], {"k": 1.0}),
    Case(INDEX + "index-unique/", unique("k"), [{"a": 1}], {"a": 2}),
    Case(
        INDEX + "index-unique/", unique([("a", 1), ("b", -1)]), [{"a": 1, "b": 1}, {"a": 1, "b": 2}], {"a": 1, "b": 2}
    ),
    Case(INDEX + "index-unique/", unique([("s", 1), ("at", 1)]), [{"s": "x", "at": NOON}], {"s": "x", "at": NOON}),
    Case(INDEX + "index-unique/", unique("m.fp"), [{"m": {"fp": "x"}}, {"m": {"fp": "y"}}], {"m": {"fp": "x"}}),
    Case(INDEX + "index-unique/", unique("t"), [{"t": ["a", "a"]}, {"t": "b"}], {"t": ["c", "b"]}),
    # nothing in an array is a key, too
    Case(INDEX + "index-unique/", unique("t"), [{"t": []}, {"t": [1]}, {}], {"t": []}),
    Case(INDEX + "index-unique/", unique("n"), [{"n": math.nan}, {"n": math.inf}, {"n": 0}], {"n": math.nan}),
    Case(INDEX + "index-sparse/", unique("k", sparse=True), [{"a": 1}, {"a": 2}, {"k": 1}], {"k": 1}),
    Case(INDEX + "index-sparse/", unique("k", sparse=True), [{"a": 1}, {"k": None}], {"k": None}),
    Case(
        INDEX + "index-partial/",
        unique("k", partialFilterExpression={"active": True}),
        [{"k": 1, "active": False}, {"k": 1}, {"k": 1, "active": True}],
        {"k": 1, "active": True},
    ),
    Case(
        INDEX + "index-partial/",
        unique("k", partialFilterExpression={"k": {"$exists": True}}),
        [{"a": 1}, {"a": 2}, {"k": 1}],
        {"k": 1},
    ),
    Case(
        INDEX + "index-partial/",
        unique("k", partialFilterExpression={"status": {"$in": ["pending", "running"]}}),
        [{"k": 1, "status": "done"}, {"k": 1, "status": "error"}, {"k": 1, "status": "pending"}],
        {"k": 1, "status": "running"},
    ),
    Case(
        INDEX + "index-partial/",
        unique("k", partialFilterExpression={"n": {"$gt": 5}}),
        [{"k": 1, "n": 5}, {"k": 1, "n": 4}, {"k": 1, "n": 6}],
        {"k": 1, "n": 7},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.index.document['name']} {case.refused}")
def test_a_unique_index_refuses_a_second_of_its_keys_however_it_comes(
    collection: Collection[Document], case: Case
) -> None:
    collection.create_indexes([case.index])
    collection.insert_many([dict(document) for document in case.accepted])
    with pytest.raises(DuplicateKeyError) as caught:
        collection.insert_one({"_id": "inserted", **case.refused})
    assert dict((caught.value.details or {})["keyPattern"]) == dict(case.index.document["key"])
    with pytest.raises(DuplicateKeyError):
        collection.update_one({"_id": "upserted"}, {"$set": case.refused}, upsert=True)
    with pytest.raises(DuplicateKeyError):
        collection.find_one_and_replace({"_id": "replaced"}, case.refused, upsert=True)
    assert collection.count_documents({}) == len(case.accepted)


def test_a_duplicate_key_names_the_index_and_the_value(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/error-codes/
    collection.create_index("k", unique=True)
    collection.insert_many([{"_id": 1, "k": "x"}, {"_id": 2, "k": "y"}])
    with pytest.raises(DuplicateKeyError) as caught:
        collection.update_one({"_id": 2}, {"$set": {"k": "x"}})
    details = caught.value.details or {}
    assert (details["code"], details["keyPattern"], details["keyValue"]) == (11000, {"k": 1}, {"k": "x"})
    with pytest.raises(DuplicateKeyError) as caught:
        collection.insert_one({"_id": 1})
    details = caught.value.details or {}
    assert (details["keyPattern"], details["keyValue"]) == ({"_id": 1}, {"_id": 1})


def test_a_key_that_was_given_up_is_free(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/core/index-unique/
    collection.create_index("k", unique=True, sparse=True)
    collection.insert_many([{"_id": 1, "k": "x"}, {"_id": 2, "k": "y"}])
    collection.update_one({"_id": 1}, {"$unset": {"k": ""}})
    collection.delete_one({"_id": 2})
    collection.insert_many([{"k": "x"}, {"k": "y"}])
    assert collection.count_documents({"k": {"$in": ["x", "y"]}}) == 2


def test_indexes_are_made_once_listed_and_dropped(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/command/createIndexes/
    models = [
        IndexModel([("a", 1)]),
        IndexModel([("b", -1), ("a", 1)], name="ba", unique=True),
        IndexModel("s", sparse=True),
        IndexModel("p", partialFilterExpression={"x": {"$exists": True}}),
    ]
    for _ in range(2):
        collection.create_indexes(models)
    indexes = {spec["name"]: spec for spec in collection.list_indexes()}
    assert set(indexes) == {"_id_", "a_1", "ba", "s_1", "p_1"}
    assert dict(indexes["ba"]["key"]) == {"b": -1, "a": 1}
    assert (indexes["ba"]["unique"], indexes["s_1"]["sparse"]) == (True, True)
    assert indexes["p_1"]["partialFilterExpression"] == {"x": {"$exists": True}}
    collection.drop_index("ba")
    collection.drop_index([("a", 1)])
    assert set(collection.index_information()) == {"_id_", "s_1", "p_1"}
    collection.drop_indexes()
    assert set(collection.index_information()) == {"_id_"}


def test_an_index_built_later_knows_what_was_there(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/core/index-creation/
    collection.insert_many([{"_id": number, "k": number % 7} for number in range(70)])
    collection.create_index("k")
    assert [found["_id"] for found in collection.find({"k": 3}).sort("_id", 1)] == list(range(3, 70, 7))
    with pytest.raises(OperationFailure) as caught:
        collection.create_index("k", unique=True, name="unique")
    assert caught.value.code == 11000
    assert set(collection.index_information()) == {"_id_", "k_1"}


@pytest.mark.parametrize("field", ["n", "m.n"])
def test_a_null_is_counted_with_the_fields_that_are_missing(collection: Collection[Document], field: str) -> None:
    # https://www.mongodb.com/docs/manual/tutorial/query-for-null-fields/
    collection.create_index([("k", 1), (field, 1)])
    collection.insert_many(
        [{"k": 1, "n": None, "m": {"n": None}}, {"k": 1}, {"k": 2}, {"k": 1, "n": 0, "m": {"n": 0}}]
    )
    assert collection.count_documents({"k": 1, field: None}) == 2
    collection.insert_one({"k": 1, "n": [], "m": {"n": []}})
    assert collection.count_documents({"k": 1, field: None}) == 2
    collection.insert_one({"k": 1, "n": [1, None], "m": [{"n": 1}, {"n": None}]})
    assert collection.count_documents({"k": 1, field: None}) == 3


def test_an_index_that_contradicts_another_is_refused(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/command/createIndexes/#considerations
    collection.create_index("a", name="one")
    for keys, options, code in [
        ("a", {"name": "two"}, 85),
        ("b", {"name": "one"}, 86),
    ]:
        with pytest.raises(OperationFailure) as caught:
            collection.create_index(keys, **options)
        assert caught.value.code == code


PARTIALS: list[tuple[Document, int]] = [
    ({"s": Regex("^x")}, 67),
    ({"s": {"$regex": "^x"}}, 67),
    ({"s": {"$eq": Regex("^x")}}, 2),
    ({"s": {"$ne": "x"}}, 67),
    ({"s": {"$exists": False}}, 67),
]


@pytest.mark.parametrize(("expression", "code"), PARTIALS, ids=str)
def test_an_index_of_part_of_a_collection_is_refused_where_the_part_is_not_said_by_values(
    collection: Collection[Document], expression: Document, code: int
) -> None:
    # https://www.mongodb.com/docs/manual/core/index-partial/#create-a-partial-index
    with pytest.raises(OperationFailure) as caught:
        collection.create_index("k", partialFilterExpression=expression)
    assert caught.value.code == code


def test_two_arrays_cannot_share_a_compound_index(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/core/indexes/index-types/index-multikey/#compound-multikey-indexes
    collection.create_index([("a", 1), ("b", 1)])
    collection.insert_one({"a": [1, 2], "b": 1})
    with pytest.raises(OperationFailure) as caught:
        collection.insert_one({"a": [1], "b": [2]})
    assert caught.value.code == 171
