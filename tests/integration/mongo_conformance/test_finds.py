"""What `find` and its relatives answer: order, windows, projections, cursors, counts."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Int64, ObjectId
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database

Document = dict[str, Any]
NOON = datetime(2026, 3, 1, 12, 0, 0, 123000, tzinfo=UTC)


def ids(found: Any) -> list[Any]:
    return [document["_id"] for document in found]


def test_what_was_inserted_comes_back_with_its_types_and_order(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/bson-types/
    document = {
        "_id": ObjectId(),
        "z": "žluťoučký \0 🐎",
        "i": 5,
        "l": Int64(3),
        "big": 2**62,
        "f": 2.0,
        "t": True,
        "n": None,
        "a": [1, "a", {"z": []}],
        "d": {"a.b": 1, "$x": {"y": b"\0\xff"}},
    }
    collection.insert_one(dict(document))
    found = collection.find_one({}) or {}
    assert found == document
    assert list(found) == list(document)
    assert [type(found[name]) for name in "ilf"] == [int, Int64, float]


def test_sorts_follow_the_order_of_types(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/
    values: list[Any] = [NOON, True, ObjectId(), b"x", {"a": 1}, "text", 2.5, 2, None]
    collection.insert_many([{"_id": number, "v": value} for number, value in enumerate(values)])
    expected = list(range(len(values)))[::-1]
    assert ids(collection.find().sort("v", 1)) == expected
    collection.create_index("v")
    assert ids(collection.find().sort("v", 1)) == expected
    assert ids(collection.find().sort("v", -1)) == expected[::-1]


def test_missing_sorts_as_null(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/#non-existent-fields
    collection.insert_many([{"_id": 1, "v": None}, {"_id": 2, "v": 5}, {"_id": 3}])
    assert ids(collection.find().sort([("v", 1), ("_id", 1)])) == [1, 3, 2]


def test_arrays_sort_by_their_least_or_greatest_element(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/#arrays
    collection.insert_many(
        [{"_id": 1, "v": [3, 9]}, {"_id": 2, "v": 5}, {"_id": 3, "v": [1, 7]}, {"_id": 4, "v": []}]
    )
    assert ids(collection.find().sort("v", 1)) == [4, 3, 1, 2]
    assert ids(collection.find().sort("v", -1)) == [1, 3, 2, 4]


@pytest.mark.parametrize("index", [None, [("a", 1), ("b", 1)], [("a", -1), ("b", -1)]], ids=str)
def test_sort_skip_and_limit_cut_a_window(collection: Collection[Document], index: Any) -> None:
    # https://www.mongodb.com/docs/manual/reference/method/cursor.sort/
    if index:
        collection.create_index(index)
    collection.insert_many([{"_id": number, "a": number % 3, "b": -number} for number in range(50)])
    ordered = sorted(range(50), key=lambda number: (number % 3, -number))
    found = collection.find().sort([("a", 1), ("b", 1)])
    assert ids(found.skip(3).limit(4)) == ordered[3:7]
    assert ids(collection.find({"a": 1}).sort("b", -1).limit(3)) == [1, 4, 7]


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("is_multikey", [False, True])
def test_some_values_and_a_range_find_the_same_with_and_without_an_index(
    collection: Collection[Document], direction: int, *, is_multikey: bool
) -> None:
    # https://www.mongodb.com/docs/manual/core/indexes/index-types/index-compound/
    several: list[Any] = [[0, 9]] if is_multikey else []
    rows = [{"s": s, "n": n} for s in ("a", "b", "c", None) for n in (1, 2, None, "2", *several)]
    collection.insert_many([{"_id": number, **row} for number, row in enumerate(rows)])
    queries: list[Document] = [
        {"s": {"$in": ["c", "a"]}, "n": {"$gte": 1, "$lt": 9}},
        {"s": {"$in": ["c", None]}, "n": {"$in": [1, 2, None]}},
        {"s": {"$in": ["a"]}, "$or": [{"n": {"$lt": 2}}, {"n": {"$gt": 8}}]},
        {"s": {"$in": []}, "n": {"$gt": 0}},
    ]
    unindexed = [ids(collection.find(query).sort("_id", 1)) for query in queries]
    collection.create_index([("s", 1), ("n", direction)])
    assert [ids(collection.find(query).sort("_id", 1)) for query in queries] == unindexed
    assert [collection.count_documents(query) for query in queries] == [len(found) for found in unindexed]
    assert all(unindexed[:3])


def test_a_compound_index_with_mixed_directions_gives_the_same_order(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/tutorial/sort-results-with-indexes/
    collection.insert_many([{"_id": number, "s": "p", "a": number % 4, "b": number} for number in range(40)])
    sort, query = [("a", -1), ("b", 1)], {"s": "p", "b": {"$lt": 30}}
    unindexed = ids(collection.find(query).sort(sort))
    collection.create_index([("s", 1), ("a", -1), ("b", 1)])
    assert ids(collection.find(query).sort(sort)) == unindexed
    assert unindexed[:2] == [3, 7]


@pytest.mark.parametrize("direction", [1, -1])
def test_ranges_on_ascending_and_descending_indexes_hold_their_ends(
    collection: Collection[Document], direction: int
) -> None:
    # https://www.mongodb.com/docs/manual/core/indexes/index-types/index-compound/
    collection.create_index([("k", 1), ("n", direction)])
    collection.insert_many([{"_id": number, "k": "x", "n": number} for number in range(10)])
    collection.insert_many([{"k": "x", "n": "text"}, {"k": "x"}, {"k": "y", "n": 5}])
    for query, expected in [
        ({"$gt": 2, "$lt": 5}, [3, 4]),
        ({"$gte": 2, "$lte": 5}, [2, 3, 4, 5]),
        ({"$gt": 7}, [8, 9]),
        ({"$lte": 1}, [0, 1]),
        ({"$gt": 5, "$lt": 5}, []),
        ({"$in": [3, 1]}, [1, 3]),
    ]:
        assert ids(collection.find({"k": "x", "n": query}).sort("n", 1)) == expected
        assert ids(collection.find({"k": "x", "n": query}).sort("n", -1)) == expected[::-1]
        assert collection.count_documents({"k": "x", "n": query}) == len(expected)


@pytest.mark.parametrize("direction", [1, -1])
def test_ranges_find_the_same_with_and_without_an_index(collection: Collection[Document], direction: int) -> None:
    # https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/
    values: list[Any] = [
        None,
        math.nan,
        -math.inf,
        -1,
        0,
        1.5,
        math.inf,
        "",
        "\0",
        "a",
        {},
        {"a": 1},
        b"",
        False,
        True,
    ]
    collection.create_index([("n", direction)])
    collection.insert_many([{"_id": number, "n": value, "m": value} for number, value in enumerate(values)])
    for comparison in ("$lt", "$lte", "$gt", "$gte"):
        for value in values:
            unindexed = ids(collection.find({"m": {comparison: value}}))
            assert sorted(ids(collection.find({"n": {comparison: value}}))) == unindexed, (comparison, value)


def test_ids_are_paged_by_prefix(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/operator/query/gt/
    collection.insert_many([{"_id": f"{job}:{number:04d}"} for job in ("a", "ab", "b") for number in range(5)])
    page = {"_id": {"$gt": "a:0001", "$lt": "a;"}}
    assert ids(collection.find(page).sort("_id", 1).limit(2)) == ["a:0002", "a:0003"]
    assert ids(collection.find(page).sort("_id", -1).limit(1)) == ["a:0004"]
    assert collection.count_documents(page) == 3


@pytest.mark.parametrize("direction", [1, -1])
def test_any_of_several_ranges_finds_each_once_with_and_without_an_index(
    collection: Collection[Document], direction: int
) -> None:
    # https://www.mongodb.com/docs/manual/reference/operator/query/or/
    collection.create_index([("n", direction)])
    collection.insert_many([{"_id": number, "n": number, "m": number} for number in range(20)])
    collection.insert_many([{"_id": 20, "n": [1, 11], "m": [1, 11]}, {"_id": 21, "n": "a", "m": "a"}, {"_id": 22}])
    for ranges in (
        [{"$gt": 3, "$lt": 6}, {"$gte": 10, "$lte": 12}],
        [{"$gt": 3, "$lt": 9}, {"$gt": 5, "$lt": 7}, {"$gte": 8, "$lt": 12}],
        [{"$gt": 5, "$lt": 3}, {"$lt": 2}, {"$gte": "a"}],
        [{"$gte": 17}],
    ):
        unindexed = ids(collection.find({"$or": [{"m": one} for one in ranges]}))
        either = {"$or": [{"n": one} for one in ranges]}
        assert sorted(ids(collection.find(either))) == sorted(unindexed)
        assert collection.count_documents(either) == len(unindexed)
        assert sorted(ids(collection.find({**either, "n": {"$gt": 1}}))) == [
            *sorted(ids(collection.find({"$or": [{"m": one} for one in ranges], "m": {"$gt": 1}})))
        ]


def test_dates_are_compared_as_moments_to_the_millisecond(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/bson-types/#date
    collection.insert_many([{"_id": number, "at": NOON + timedelta(minutes=number)} for number in range(10)])
    window = {"at": {"$gte": NOON + timedelta(minutes=3), "$lt": NOON + timedelta(minutes=5)}}
    assert ids(collection.find(window).sort("at", 1)) == [3, 4]
    assert collection.count_documents({"at": NOON}) == 1
    assert collection.count_documents({"at": NOON - timedelta(milliseconds=1)}) == 0


PROJECT = "https://www.mongodb.com/docs/manual/tutorial/project-fields-from-query-results/"
SLICE = "https://www.mongodb.com/docs/manual/reference/operator/projection/slice/"
WHOLE = {"_id": 1, "a": 1, "b": {"c": 2, "d": 3}, "l": [1, 2, 3, 4], "o": [{"x": 1, "y": 2}, {"x": 3}]}
PROJECTIONS: list[tuple[str, Document, Document]] = [
    (PROJECT, {"a": 1}, {"_id": 1, "a": 1}),
    (PROJECT, {"a": 1, "_id": 0}, {"a": 1}),
    (PROJECT, {"_id": 1}, {"_id": 1}),
    (PROJECT, {"b": 0, "l": 0, "o": 0}, {"_id": 1, "a": 1}),
    (PROJECT, {"_id": 0, "b": 0, "l": 0, "o": 0}, {"a": 1}),
    (PROJECT, {"b.c": 1}, {"_id": 1, "b": {"c": 2}}),
    (PROJECT, {"b.c": 0, "l": 0, "o": 0}, {"_id": 1, "a": 1, "b": {"d": 3}}),
    (PROJECT, {"o.x": 1}, {"_id": 1, "o": [{"x": 1}, {"x": 3}]}),
    (PROJECT, {"o.x": 0, "b": 0, "l": 0}, {"_id": 1, "a": 1, "o": [{"y": 2}, {}]}),
    (PROJECT, {"missing": 1}, {"_id": 1}),
    (SLICE, {"a": 1, "l": {"$slice": 2}}, {"_id": 1, "a": 1, "l": [1, 2]}),
    (SLICE, {"b.c": 1, "l": {"$slice": 9}, "a": {"$slice": 1}}, {"_id": 1, "a": 1, "b": {"c": 2}, "l": [1, 2, 3, 4]}),
]


@pytest.mark.parametrize(("page", "projection", "expected"), PROJECTIONS, ids=lambda value: str(value)[-50:])
def test_a_projection_answers_what_the_manual_says(
    collection: Collection[Document], page: str, projection: Document, expected: Document
) -> None:
    collection.insert_one(dict(WHOLE))
    assert collection.find_one({}, projection) == expected


def test_cursors_give_everything_once_in_batches_of_any_size(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/command/getMore/
    collection.insert_many([{"_id": number, "p": "x" * 2000} for number in range(1500)])
    assert ids(collection.find(batch_size=7).limit(500)) == list(range(500))
    assert ids(collection.find().sort("_id", -1)) == list(range(1500))[::-1]
    assert ids(collection.find().sort("p", 1).batch_size(400).max_time_ms(60_000).comment("c")) != []


def test_a_cursor_answers_batches_within_the_limit_of_a_message(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/limits/
    for number in range(5):
        collection.insert_one({"_id": number, "p": "x" * 6_000_000})
    assert ids(collection.find()) == list(range(5))
    # a limit that is within a batch, but whose documents are not
    assert ids(collection.find().limit(5)) == list(range(5))
    assert ids(collection.find(batch_size=4).limit(4)) == list(range(4))


def test_counts_and_distinct_values(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/command/distinct/
    collection.insert_many([{"n": number, "t": ["a", "b"] if number % 2 else "c"} for number in range(30)])
    assert collection.count_documents({}) == collection.estimated_document_count() == 30
    assert collection.count_documents({"n": {"$gte": 10}}, skip=5, limit=20) == 15
    assert collection.count_documents({"n": {"$gte": 10}}, limit=7) == 7
    # the same where an index alone can tell
    collection.create_index([("n", 1)], name="by_n")
    assert collection.count_documents({"n": {"$gte": 10}}, skip=5, limit=20) == 15
    assert [collection.count_documents({"n": {"$gte": 10}}, limit=most) for most in (7, 20, 99)] == [7, 20, 20]
    assert sorted(collection.distinct("t")) == ["a", "b", "c"]
    assert collection.distinct("t", {"n": 0}) == ["c"]
    assert collection.distinct("nothing") == []


def test_collections_and_databases_are_listed_and_dropped(client: MongoClient[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/command/dropDatabase/
    one, other = (client[f"conformance_{uuid.uuid4().hex[:8]}"] for _ in range(2))
    for database in (one, other):
        database["same"].insert_one({"_id": database.name})
    one["items.raw"].insert_one({})
    assert one["same"].find_one() == {"_id": one.name}
    assert sorted(one.list_collection_names()) == ["items.raw", "same"]
    assert {one.name, other.name} <= set(client.list_database_names())
    one.drop_collection("same")
    assert one.list_collection_names() == ["items.raw"]
    client.drop_database(one.name)
    assert one.list_collection_names() == []
    assert other["same"].count_documents({}) == 1
    client.drop_database(other.name)


def test_hello_tells_the_time_and_the_limits(database: Database[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/command/hello/
    hello = database.command("hello")
    # the driver here is not told to be aware of zones
    assert abs(datetime.now(UTC).replace(tzinfo=None) - hello["localTime"]) < timedelta(seconds=5)
    assert (hello["maxBsonObjectSize"], hello["isWritablePrimary"]) == (16 * 1024 * 1024, True)
