"""A collection with indexes answers as one without, whatever is done to it; and a file is opened with care."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forms import full_or_short
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embedded.mongo.collection import Collection, Search
from embedded.mongo.errors import MongoError
from embedded.mongo.index import IndexSpec
from embedded.mongo.store import FORMAT, Store, StoreError
from embedded.mongo.update import Update

Document = dict[str, Any]

VALUES = st.none() | st.integers(-2, 3) | st.sampled_from(["", "x", 1.5, True])
FIELDS = st.sampled_from(["a", "b", "d.e"])
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "a": VALUES | st.lists(VALUES, max_size=3),
        "b": VALUES,
        "d": st.fixed_dictionaries({}, optional={"e": VALUES}),
    },
)
CONDITIONS = st.one_of(
    VALUES,
    st.dictionaries(st.sampled_from(["$gt", "$gte", "$lt", "$lte", "$eq", "$ne"]), VALUES, min_size=1, max_size=2),
    st.fixed_dictionaries({"$in": st.lists(VALUES, max_size=3)}),
    st.fixed_dictionaries({"$exists": st.booleans()}),
)
QUERIES = st.dictionaries(FIELDS, CONDITIONS, max_size=3)
DIRECTIONS = st.sampled_from([1, -1])
SORTS = st.lists(st.tuples(FIELDS, DIRECTIONS), max_size=2, unique_by=lambda part: part[0])
SPECS = st.one_of(
    st.builds(lambda key: {"key": dict(key)}, st.lists(st.tuples(FIELDS, DIRECTIONS), min_size=1, max_size=3)),
    st.builds(lambda name: {"key": {name: 1}, "sparse": True}, FIELDS),
    st.builds(lambda name: {"key": {name: 1}, "partialFilterExpression": {name: {"$exists": True}}}, FIELDS),
    st.builds(lambda name: {"key": {name: 1}, "partialFilterExpression": {name: {"$gt": 0}}}, FIELDS),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "mongo.sqlite")
    yield store
    store.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("store") / "mongo.sqlite")
    yield store
    store.close()


def filled(store: Store, name: str, documents: list[Document], specs: list[Document]) -> Collection:
    collection = store.get_or_create("test", name)
    for number, spec in enumerate(specs):
        store.create_index(collection, IndexSpec({**spec, "name": f"index{number}"}))
    store.begin()
    for number, document in enumerate(documents):
        collection.insert({"_id": number, **document})
    return collection


def answers(collection: Collection, search: Search) -> list[Document]:
    return [found.document for found in collection.find(search) if found is not None]


def count(collection: Collection, query: Document) -> int | None:
    return list(collection.count(query))[-1]


@settings(
    max_examples=full_or_short(100, 30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    documents=st.lists(DOCUMENTS, max_size=8),
    specs=st.lists(SPECS, min_size=1, max_size=3),
    updates=st.lists(st.tuples(st.integers(0, 11), DOCUMENTS), max_size=4),
    deletes=st.sets(st.integers(0, 11), max_size=3),
    searches=st.lists(st.tuples(QUERIES, SORTS), min_size=1, max_size=4),
)
def test_indexes_change_nothing_but_the_way(
    shared: Store,
    *,
    documents: list[Document],
    specs: list[Document],
    updates: list[tuple[int, Document]],
    deletes: set[int],
    searches: list[tuple[Document, list[tuple[str, int]]]],
) -> None:
    plain, indexed = filled(shared, "plain", documents, []), filled(shared, "indexed", documents, specs)
    try:
        for collection in (plain, indexed):
            change(collection, updates, deletes)
        for query, sort in searches:
            # `_id` last makes the order one order
            search = Search(query, [*sort, ("_id", 1)])
            assert answers(indexed, search) == answers(plain, search)
            assert sorted(found["_id"] for found in answers(indexed, Search(query, sort))) == sorted(
                found["_id"] for found in answers(plain, search)
            )
            assert count(indexed, query) == len(answers(plain, search))
    finally:
        shared.drop("test", "plain")
        shared.drop("test", "indexed")
        shared.commit()


def change(collection: Collection, updates: list[tuple[int, Document]], deletes: set[int]) -> None:
    for number, replacement in updates:
        for found in list(collection.find(Search({"_id": number}))):
            if found is not None:
                collection.replace(found, Update(replacement).apply(found.document | {}))
    for number in deletes:
        for found in list(collection.find(Search({"_id": number}))):
            if found is not None:
                collection.remove(found)


@pytest.mark.parametrize(
    ("query", "sort", "index", "is_sorted", "is_exact"),
    [
        ({"_id": "x"}, [], "_id_", True, True),
        ({"_id": {"$gt": "j:", "$lt": "j;"}}, [("_id", 1)], "_id_", True, True),
        ({"key": "x"}, [], "key", True, True),
        ({"status": "p", "due": {"$lte": 5}}, [("priority", -1), ("created", 1)], "best", True, False),
        ({"user": "u"}, [("created", -1), ("_id", -1)], "newest", True, True),
        ({"user": "u"}, [("created", 1), ("_id", 1)], "newest", True, True),
        ({"user": "u"}, [("created", 1), ("_id", -1)], "newest", False, True),
        ({"job": "j", "attempt": 1, "start": {"$gte": 10}}, [("start", 1)], "place", True, True),
        ({"status": {"$in": ["p", "r"]}}, [("status", 1)], "best", True, True),
        ({"other": 1}, [], None, False, False),
        ({}, [], None, False, True),
    ],
    ids=str,
)
def test_the_hot_queries_walk_their_index(
    store: Store, query: Document, sort: list[tuple[str, int]], *, index: str | None, is_sorted: bool, is_exact: bool
) -> None:
    specs: dict[str, Document] = {
        "key": {"key": {"key": 1}, "unique": True, "sparse": True},
        "best": {"key": {"status": 1, "priority": -1, "created": 1}},
        "newest": {"key": {"user": 1, "created": -1, "_id": -1}},
        "place": {"key": {"job": 1, "attempt": 1, "start": 1}},
    }
    collection = store.get_or_create("test", "jobs")
    for name, spec in specs.items():
        store.create_index(collection, IndexSpec({**spec, "name": name}))
    _, plan = collection._prepare(Search(query, sort))
    assert (plan.index.spec.name if plan.index else None, plan.is_sorted, plan.is_exact) == (
        index,
        is_sorted,
        is_exact,
    )


def test_a_refused_document_leaves_no_trace(store: Store) -> None:
    collection = filled(store, "c", [{"k": 1}], [{"key": {"a": 1}}, {"key": {"k": 1}, "unique": True}])
    with pytest.raises(MongoError):
        collection.insert({"_id": "new", "a": 5, "k": 1})
    for index in collection.indexes.values():
        assert store.connection.execute(f"SELECT count(*) FROM {index.table}").fetchone() == (1,)


def test_a_rolled_back_turn_takes_its_collections_and_indexes_along(store: Store) -> None:
    filled(store, "kept", [{"a": 1}], [])
    store.commit()
    filled(store, "gone", [{"a": 1}], [{"key": {"a": 1}}])
    store.rollback()
    assert list(store.collections) == [("test", "kept")]
    assert answers(filled(store, "gone", [{"a": 2}], []), Search({})) == [{"_id": 0, "a": 2}]


def test_a_file_is_served_once_at_a_time(tmp_path: Path) -> None:
    first = Store(tmp_path / "mongo.sqlite")
    with pytest.raises(StoreError, match="in use"):
        Store(tmp_path / "mongo.sqlite")
    first.close()
    Store(tmp_path / "mongo.sqlite").close()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mongo.sqlite"
    path.write_bytes(b"no database at all" * 1000)
    with pytest.raises(StoreError, match=r"mongo\.sqlite is damaged"):
        Store(path)


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mongo.sqlite"
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    with pytest.raises(StoreError, match="newer version"):
        Store(path)


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mongo.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        Store(path)


def test_an_array_before_the_order_of_an_index_does_not_disturb_it(tmp_path: Path) -> None:
    documents = [{"tags": ["a", "b"][: number % 3], "at": number} for number in range(3000)]
    store = Store(tmp_path / "mongo.sqlite")
    collection = filled(store, "jobs", documents, [{"key": {"tags": 1, "at": -1}}])
    newest = Search({"tags": "b", "at": {"$gte": 10, "$lt": 2000}}, [("at", -1)], limit=2)
    walked = list(collection.find(newest))
    assert [found.document["at"] for found in walked if found] == [1997, 1994]
    # a pause for others before each read
    assert walked.count(None) == 1
    # an array counts by its smallest element, and no walk over one of them is in that order
    smallest = Search({"tags": "b"}, [("tags", 1), ("at", 1)], limit=1)
    collection.insert({"_id": -1, "tags": ["b", "Z"], "at": 5000})
    assert [found.document["at"] for found in collection.find(smallest) if found] == [5000]
    store.commit()
    store.close()
    again = Store(tmp_path / "mongo.sqlite")
    assert list(again.collections["test", "jobs"].find(newest)).count(None) == 1
    again.close()


def test_an_index_that_an_older_version_knew_to_have_arrays_gives_no_order(tmp_path: Path) -> None:
    store = Store(tmp_path / "mongo.sqlite")
    filled(store, "jobs", [{"a": 1, "b": [1, 9]}, {"a": 1, "b": [2]}], [{"key": {"a": 1, "b": 1}}])
    store.connection.execute("UPDATE indexes SET multikey = 1 WHERE multikey")
    store.commit()
    store.close()
    again = Store(tmp_path / "mongo.sqlite")
    largest = Search({"a": 1}, [("b", -1)])
    assert [found["_id"] for found in answers(again.collections["test", "jobs"], largest)] == [0, 1]
    again.close()


def test_what_python_takes_for_equal_is_another_key(store: Store) -> None:
    specs: list[Document] = [
        {"key": {"a": 1}},
        {"key": {"d.e": 1}},
        {"key": {"b": 1}, "partialFilterExpression": {"a": True}},
    ]
    collection = filled(store, "c", [{"a": 1, "b": 5, "d": {"e": 1}}], specs)
    (found,) = [found for found in collection.find(Search({})) if found]
    collection.replace(found, {"_id": 0, "a": True, "b": 5, "d": {"e": True}})
    for query in ({"a": True}, {"d.e": True}, {"a": True, "b": 5}):
        assert len(answers(collection, Search(query))) == 1
    for query in ({"a": 1}, {"d.e": 1}):
        assert answers(collection, Search(query)) == []
