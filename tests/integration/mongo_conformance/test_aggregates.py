"""What pipelines answer. `page` is the page of MongoDB's manual that the expectation comes from."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from pymongo.collection import Collection

Document = dict[str, Any]
STAGE = "https://www.mongodb.com/docs/manual/reference/operator/aggregation/"

DOCUMENTS: list[Document] = [
    {"_id": number, "job": f"j{number % 3}", "n": number, "ok": number % 4 > 0, "o": {"p": [number]}}
    for number in range(24)
]
LOOSE: list[Document] = [
    {"_id": 1, "g": "a", "v": 2},
    {"_id": 2, "v": "text"},
    {"_id": 3, "g": None, "v": 1.5},
    {"_id": 4, "g": "a"},
    {"_id": 5, "g": "a", "v": None},
]


class Case(NamedTuple):
    page: str
    documents: list[Document]
    pipeline: list[Document]
    expected: list[Document]


def by_id(accumulator: Document) -> list[Document]:
    return [{"$group": {"_id": "$g", "r": accumulator}}, {"$sort": {"_id": 1}}]


CASES = [
    Case(
        STAGE + "group/",
        DOCUMENTS,
        [
            {"$match": {"n": {"$gte": 6}}},
            {
                "$group": {
                    "_id": "$job",
                    "count": {"$sum": 1},
                    "sum": {"$sum": "$n"},
                    "avg": {"$avg": "$n"},
                    "max": {"$max": "$n"},
                    "min": {"$min": "$n"},
                }
            },
            {"$sort": {"_id": 1}},
        ],
        [
            {"_id": "j0", "count": 6, "sum": 81, "avg": 13.5, "max": 21, "min": 6},
            {"_id": "j1", "count": 6, "sum": 87, "avg": 14.5, "max": 22, "min": 7},
            {"_id": "j2", "count": 6, "sum": 93, "avg": 15.5, "max": 23, "min": 8},
        ],
    ),
    Case(
        STAGE + "group/",
        DOCUMENTS,
        [
            {"$group": {"_id": {"job": "$job", "ok": "$ok"}, "c": {"$sum": 1}}},
            {"$sort": {"c": -1, "_id.job": 1}},
            {"$limit": 2},
        ],
        [{"_id": {"job": "j0", "ok": True}, "c": 6}, {"_id": {"job": "j1", "ok": True}, "c": 6}],
    ),
    Case(STAGE + "group/", DOCUMENTS, [{"$group": {"_id": None, "c": {"$sum": 1}}}], [{"_id": None, "c": 24}]),
    Case(STAGE + "group/", [], [{"$group": {"_id": None, "c": {"$sum": 1}}}], []),
    # null and missing are one group
    Case(STAGE + "group/", LOOSE, by_id({"$sum": 1}), [{"_id": None, "r": 2}, {"_id": "a", "r": 3}]),
    Case(STAGE + "sum/", LOOSE, by_id({"$sum": "$v"}), [{"_id": None, "r": 1.5}, {"_id": "a", "r": 2}]),
    Case(STAGE + "avg/", LOOSE, by_id({"$avg": "$v"}), [{"_id": None, "r": 1.5}, {"_id": "a", "r": 2}]),
    Case(STAGE + "avg/", LOOSE, by_id({"$avg": "$x"}), [{"_id": None, "r": None}, {"_id": "a", "r": None}]),
    Case(STAGE + "min/", LOOSE, by_id({"$min": "$v"}), [{"_id": None, "r": 1.5}, {"_id": "a", "r": 2}]),
    Case(STAGE + "max/", LOOSE, by_id({"$max": "$v"}), [{"_id": None, "r": "text"}, {"_id": "a", "r": 2}]),
    Case(
        STAGE + "first/",
        LOOSE,
        [{"$sort": {"_id": 1}}, *by_id({"$first": "$v"})],
        [{"_id": None, "r": "text"}, {"_id": "a", "r": 2}],
    ),
    Case(
        STAGE + "last/",
        LOOSE,
        [{"$sort": {"_id": 1}}, *by_id({"$last": "$v"})],
        [{"_id": None, "r": 1.5}, {"_id": "a", "r": None}],
    ),
    Case(
        STAGE + "push/",
        LOOSE,
        [{"$sort": {"_id": 1}}, *by_id({"$push": "$v"})],
        [{"_id": None, "r": ["text", 1.5]}, {"_id": "a", "r": [2, None]}],
    ),
    Case(
        STAGE + "addToSet/",
        DOCUMENTS,
        [{"$match": {"ok": True}}, {"$group": {"_id": None, "r": {"$addToSet": "$ok"}}}],
        [{"_id": None, "r": [True]}],
    ),
    Case(STAGE + "count/", DOCUMENTS, [{"$match": {"ok": False}}, {"$count": "total"}], [{"total": 6}]),
    Case(STAGE + "count/", DOCUMENTS, [{"$match": {"n": -1}}, {"$count": "total"}], []),
    Case(
        STAGE + "match/",
        DOCUMENTS,
        [{"$group": {"_id": "$job", "c": {"$sum": 1}}}, {"$match": {"c": {"$gt": 7}}}, {"$count": "x"}],
        [{"x": 3}],
    ),
    Case(
        STAGE + "skip/",
        DOCUMENTS,
        [{"$sort": {"n": -1}}, {"$skip": 2}, {"$limit": 2}, {"$project": {"n": 1, "_id": 0}}],
        [{"n": 21}, {"n": 20}],
    ),
    Case(STAGE + "limit/", DOCUMENTS, [{"$sort": {"n": 1}}, {"$limit": 3}, {"$count": "x"}], [{"x": 3}]),
    Case(
        STAGE + "project/",
        DOCUMENTS,
        [{"$match": {"_id": 5}}, {"$project": {"_id": 0, "number": "$n", "o.p": 1}}],
        [{"o": {"p": [5]}, "number": 5}],
    ),
    Case(
        STAGE + "project/",
        LOOSE,
        [{"$match": {"_id": 4}}, {"$project": {"copy": "$g", "none": "$v"}}],
        [{"_id": 4, "copy": "a"}],
    ),
    Case(STAGE + "project/", LOOSE, [{"$match": {"_id": 1}}, {"$project": {"v": 0}}], [{"_id": 1, "g": "a"}]),
]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.page.rstrip('/').rsplit('/', 1)[1]} {case.pipeline}"[:90]
)
def test_a_pipeline_answers_what_the_manual_says(collection: Collection[Document], case: Case) -> None:
    if case.documents:
        collection.insert_many([dict(document) for document in case.documents])
    assert collection.aggregate(case.pipeline).to_list() == case.expected


def test_a_pipeline_answers_in_batches(collection: Collection[Document]) -> None:
    # https://www.mongodb.com/docs/manual/reference/command/aggregate/
    collection.insert_many([{"_id": number} for number in range(250)])
    found = collection.aggregate([{"$match": {"_id": {"$gte": 50}}}, {"$sort": {"_id": 1}}], batchSize=30)
    assert [document["_id"] for document in found] == list(range(50, 250))
