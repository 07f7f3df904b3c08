"""Empty databases with all indexes. Creating the indexes takes three times as long as emptying the collections."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from pymongo import MongoClient

from gateway.stores.indexes import INDEXES, ensure_indexes


class Databases:
    """The databases of one server. A database that a test has filled is emptied and used again by a later test."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._client = MongoClient[dict[str, Any]](uri)
        self._made: list[str] = []
        self._empty: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._made:
            self._client.drop_database(name)
        self._client.close()

    @contextmanager
    def lent(self) -> Iterator[str]:
        """The name of an empty database. It must not be used after the block."""
        name = self._empty.pop() if self._empty else self._new()
        yield name
        used = self._client[name]
        for collection in used.list_collection_names():
            if INDEXES.get(collection):
                used[collection].delete_many({})
            else:
                used.drop_collection(collection)
        self._empty.append(name)

    def _new(self) -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        self._made.append(name)
        ensure_indexes(self._client[name])
        return name
