"""What filters match. `page` is the page of MongoDB's manual that the expectation comes from."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from bson import Binary, ObjectId, Regex
from pymongo.collection import Collection

Document = dict[str, Any]
QUERY = "https://www.mongodb.com/docs/manual/reference/operator/query/"
TUTORIAL = "https://www.mongodb.com/docs/manual/tutorial/"
ORDER = "https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/"
OID = ObjectId("507f1f77bcf86cd799439011")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

NUMBERS: list[Document] = [{"n": 1}, {"n": 2.5}, {"n": 3}, {"n": None}, {}, {"n": "2"}, {"n": True}]
WORDS: list[Document] = [{"s": "Hello"}, {"s": "help"}, {"s": "World"}, {"s": 5}, {"s": ["x", "hello"]}]
TAGS: list[Document] = [{"t": ["a", "b"]}, {"t": ["b"]}, {"t": []}, {"t": "a"}, {}, {"t": [["a", "b"], "c"]}]
NESTED: list[Document] = [
    {"a": {"b": {"c": 1}}},
    {"a": {"b": {"c": 2, "d": 1}}},
    {"a": None},
    {},
    {"a": [{"b": {"c": 1}}, {"b": {"c": 3}}]},
]
EDGES: list[Document] = [
    {"n": math.nan},
    {"n": -math.inf},
    {"n": 5},
    {"n": math.inf},
    {"n": 2**62},
    {"n": [math.nan, 7]},
]
SCRIPTS: list[Document] = [
    {"s": "žluť"},
    {"s": "ŽLUŤ 3"},
    {"s": "snow_2"},
    {"s": "٣"},
    {"s": "a\u00a0b"},
    {"s": "x\0y"},
]
ITEMS: list[Document] = [
    {"items": [{"p": 1, "q": "a"}, {"p": 2, "q": "b"}]},
    {"items": [{"p": 1, "q": "b"}]},
    {"items": [3, 8, 12]},
    {"items": []},
]
KINDS: list[Document] = [
    {"v": 1.5},
    {"v": "s"},
    {"v": {}},
    {"v": [1]},
    {"v": Binary(b"x")},
    {"v": OID},
    {"v": True},
    {"v": NOON},
    {"v": None},
    {"v": 7},
    {"v": 2**40},
    {},
]


class Case(NamedTuple):
    page: str
    documents: list[Document]
    query: Document
    #: Positions in `documents`.
    matches: list[int]


CASES = [
    # equality
    Case(QUERY + "eq/", NUMBERS, {"n": 3}, [2]),
    Case(QUERY + "eq/", NUMBERS, {"n": 3.0}, [2]),
    Case(QUERY + "eq/", NUMBERS, {"n": {"$eq": 2.5}}, [1]),
    Case(QUERY + "eq/", NUMBERS, {"n": True}, [6]),
    Case(QUERY + "eq/", NUMBERS, {"n": "2"}, [5]),
    Case(QUERY + "eq/", WORDS, {"s": "help"}, [1]),
    Case(TUTORIAL + "query-for-null-fields/", NUMBERS, {"n": None}, [3, 4]),
    Case(TUTORIAL + "query-for-null-fields/", NUMBERS, {"n": {"$ne": None}}, [0, 1, 2, 5, 6]),
    Case(TUTORIAL + "query-embedded-documents/", NESTED, {"a": {"b": {"c": 1}}}, [0, 4]),
    Case(TUTORIAL + "query-embedded-documents/", [{"o": {"x": 1, "y": 2}}], {"o": {"y": 2, "x": 1}}, []),
    Case(TUTORIAL + "query-embedded-documents/", NESTED, {"a.b.c": 2}, [1]),
    Case(TUTORIAL + "query-arrays/", TAGS, {"t": "a"}, [0, 3]),
    Case(TUTORIAL + "query-arrays/", TAGS, {"t": ["a", "b"]}, [0, 5]),
    Case(TUTORIAL + "query-arrays/", TAGS, {"t": ["b", "a"]}, []),
    Case(TUTORIAL + "query-arrays/", TAGS, {"t": []}, [2]),
    Case(TUTORIAL + "query-arrays/", TAGS[:5], {"t.0": "b"}, [1]),
    Case(TUTORIAL + "query-arrays/", ITEMS, {"items": {"$gt": 10, "$lt": 5}}, [2]),
    Case(TUTORIAL + "query-array-of-documents/", NESTED, {"a.b.c": 3}, [4]),
    Case(TUTORIAL + "query-array-of-documents/", ITEMS, {"items.0.p": 1}, [0, 1]),
    Case(TUTORIAL + "query-array-of-documents/", ITEMS, {"items.p": 1, "items.q": "b"}, [0, 1]),
    # comparisons stay within their kind of type
    Case(QUERY + "gt/", NUMBERS, {"n": {"$gt": 1}}, [1, 2]),
    Case(QUERY + "gte/", NUMBERS, {"n": {"$gte": 2.5}}, [1, 2]),
    Case(QUERY + "lt/", NUMBERS, {"n": {"$lt": 3}}, [0, 1]),
    Case(QUERY + "lte/", NUMBERS, {"n": {"$lte": 2.5}}, [0, 1]),
    Case(QUERY + "gt/", NUMBERS, {"n": {"$gt": 1, "$lt": 3}}, [1]),
    Case(ORDER, NUMBERS, {"n": {"$gte": "0"}}, [5]),
    Case(ORDER, KINDS, {"v": {"$lte": NOON}}, [7]),
    Case(ORDER, KINDS, {"v": {"$gte": OID}}, [5]),
    Case(ORDER, NUMBERS, {"n": {"$gte": None}}, [3, 4]),
    Case(QUERY + "ne/", NUMBERS, {"n": {"$ne": 3}}, [0, 1, 3, 4, 5, 6]),
    Case(QUERY + "ne/", TAGS, {"t": {"$ne": "a"}}, [1, 2, 4, 5]),
    Case(QUERY + "in/", NUMBERS, {"n": {"$in": [1, 3, "2"]}}, [0, 2, 5]),
    Case(QUERY + "in/", NUMBERS, {"n": {"$in": [None, 1]}}, [0, 3, 4]),
    Case(QUERY + "in/", NUMBERS, {"n": {"$in": []}}, []),
    Case(QUERY + "in/", TAGS, {"t": {"$in": ["a", "c"]}}, [0, 3, 5]),
    Case(QUERY + "in/", WORDS, {"s": {"$in": [Regex("^h"), "World"]}}, [1, 2, 4]),
    Case(QUERY + "nin/", NUMBERS, {"n": {"$nin": [1, 2.5]}}, [2, 3, 4, 5, 6]),
    Case(QUERY + "nin/", TAGS, {"t": {"$nin": ["a", "c"]}}, [1, 2, 4]),
    # elements
    Case(QUERY + "exists/", NUMBERS, {"n": {"$exists": True}}, [0, 1, 2, 3, 5, 6]),
    Case(QUERY + "exists/", NUMBERS, {"n": {"$exists": False}}, [4]),
    Case(QUERY + "exists/", NUMBERS, {"n": {"$exists": True, "$nin": [1, 3]}}, [1, 3, 5, 6]),
    Case(QUERY + "exists/", NESTED, {"a.b.d": {"$exists": True}}, [1]),
    Case(QUERY + "exists/", TAGS, {"t.1": {"$exists": True}}, [0, 5]),
    Case(QUERY + "exists/", TAGS, {"t.1": {"$exists": False}}, [1, 2, 3, 4]),
    # logic
    Case(QUERY + "and/", NUMBERS, {"$and": [{"n": {"$gt": 0}}, {"n": {"$lt": 3}}]}, [0, 1]),
    Case(QUERY + "or/", NUMBERS, {"$or": [{"n": 1}, {"n": "2"}]}, [0, 5]),
    Case(QUERY + "nor/", NUMBERS, {"$nor": [{"n": 1}, {"n": None}]}, [1, 2, 5, 6]),
    Case(QUERY + "or/", NUMBERS, {"n": {"$gte": 1}, "$or": [{"n": 1}, {"n": 3}]}, [0, 2]),
    # NaN is equal to itself, neither less nor greater than any number, and sorted before all
    Case(QUERY + "eq/", EDGES, {"n": math.nan}, [0, 5]),
    Case(QUERY + "ne/", EDGES, {"n": {"$ne": math.nan}}, [1, 2, 3, 4]),
    Case(QUERY + "in/", EDGES, {"n": {"$in": [math.nan, math.inf]}}, [0, 3, 5]),
    Case(QUERY + "lt/", EDGES, {"n": {"$lt": 6}}, [1, 2]),
    Case(QUERY + "lte/", EDGES, {"n": {"$lte": math.inf}}, [1, 2, 3, 4, 5]),
    Case(QUERY + "gte/", EDGES, {"n": {"$gte": -math.inf}}, [1, 2, 3, 4, 5]),
    Case(QUERY + "gt/", EDGES, {"n": {"$gt": -math.inf, "$lt": math.inf}}, [2, 4, 5]),
    Case(QUERY + "lte/", EDGES, {"n": {"$lte": math.nan}}, [0, 5]),
    Case(QUERY + "gte/", EDGES, {"n": {"$gte": math.nan}}, [0, 5]),
    Case(QUERY + "lt/", EDGES, {"n": {"$lt": math.nan}}, []),
    Case(QUERY + "gt/", EDGES, {"n": {"$gt": math.nan}}, []),
    Case(QUERY + "gt/", EDGES, {"n": {"$gt": 2**62 - 1}}, [3, 4]),
    # strings
    Case(QUERY + "regex/", WORDS, {"s": {"$regex": "^hel"}}, [1, 4]),
    Case(QUERY + "regex/", WORDS, {"s": {"$regex": "^hel", "$options": "i"}}, [0, 1, 4]),
    Case(QUERY + "regex/", WORDS, {"s": Regex("orl")}, [2]),
    # PCRE's words, digits and spaces are ASCII's; which letters differ by case alone is Unicode's to say
    Case(QUERY + "regex/", SCRIPTS, {"s": {"$regex": r"^\w+$"}}, [2]),
    Case(QUERY + "regex/", SCRIPTS, {"s": {"$regex": r"^[\w\s]+$"}}, [2]),
    Case(QUERY + "regex/", SCRIPTS, {"s": {"$regex": r"\W"}}, [0, 1, 3, 4, 5]),
    Case(QUERY + "regex/", SCRIPTS, {"s": {"$regex": r"\d"}}, [1, 2]),
    Case(QUERY + "regex/", SCRIPTS, {"s": {"$regex": r"\s"}}, [1]),
    Case(QUERY + "regex/", SCRIPTS, {"s": {"$regex": r"\bl"}}, [0]),
    Case(QUERY + "regex/", SCRIPTS, {"s": {"$regex": "žluť", "$options": "i"}}, [0, 1]),
    Case(QUERY + "regex/", SCRIPTS, {"s": {"$regex": r"\\w"}}, []),
    Case(QUERY + "regex/", SCRIPTS, {"s": {"$regex": r"x\x00y"}}, [5]),
]


def identify(case: Case) -> str:
    return f"{case.page.rstrip('/').rsplit('/', 1)[1]} {case.query}"


@pytest.mark.parametrize("case", CASES, ids=identify)
@pytest.mark.parametrize("indexed", [False, True], ids=["scan", "index"])
def test_a_filter_matches_what_the_manual_says_with_and_without_an_index(
    collection: Collection[Document], case: Case, *, indexed: bool
) -> None:
    if indexed:
        for name in [name for name in case.query if not name.startswith("$")]:
            collection.create_index(name)
    collection.insert_many([{"_id": position, **document} for position, document in enumerate(case.documents)])

    assert [found["_id"] for found in collection.find(case.query).sort("_id", 1)] == case.matches
    assert collection.count_documents(case.query) == len(case.matches)


def test_a_hexadecimal_string_is_no_object_id(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/bson-types/
    collection.insert_many([{"_id": str(OID), "kind": "string"}, {"_id": OID, "kind": "id"}])
    assert [collection.find_one({"_id": key}) for key in (str(OID), OID)] == [
        {"_id": str(OID), "kind": "string"},
        {"_id": OID, "kind": "id"},
    ]


@pytest.mark.parametrize(
    "text", ["%", "a%b", 'a"b', "a'b", "a\\b", "$x", "a.b", "[1]", "null", "ž", "\n", "", "a\0b"]
)
def test_any_text_is_found_by_equality(collection: Collection[Document], text: str) -> None:
    # https://www.mongodb.com/docs/manual/reference/bson-types/
    collection.insert_many([{"_id": 1, "v": text}, {"_id": 2, "v": text + "!"}])
    assert [found["_id"] for found in collection.find({"v": text})] == [1]


@pytest.mark.parametrize("name", ["a b", "a-b", "a'b", 'a"b', "ž", "h:x", "1"])
def test_any_field_name_is_found_and_set(collection: Collection[Document], name: str) -> None:
    # https://www.mongodb.com/docs/manual/core/document/#field-names
    collection.insert_one({"_id": 1, name: 1})
    assert collection.update_one({name: 1}, {"$set": {name: 2}}).modified_count == 1
    assert collection.find_one({name: 2}) == {"_id": 1, name: 2}
