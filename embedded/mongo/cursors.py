"""Open cursors: answers that are fetched in batches."""

from __future__ import annotations

import itertools
import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeAlias

from bson import Int64

from embedded.mongo.errors import Code, MongoError
from embedded.mongo.paths import Document

#: A command in steps: it yields where other commands may run, and returns the reply.
Answer: TypeAlias = Generator[None, None, Document]
#: The steps of a part of a command, which may return any value.
Steps: TypeAlias = Generator[None, None, Any]


#: MongoDB's own values: the size of the first batch of a `find`, and the seconds for which an unused cursor is kept.
FIRST_BATCH = 101
_IDLE_SECONDS = 600
#: The documents of an answer have at most this many bytes, so that the answer fits into a message.
_BATCH_BYTES = 16 * 1024 * 1024


@dataclass
class Batch:
    """The documents of an answer. The first document that does not fit any more stays in the flow."""

    documents: list[Any] = field(default_factory=list)
    size: int = 0

    def has_room(self, size: int) -> bool:
        return not self.documents or self.size + size <= _BATCH_BYTES

    def add(self, document: Any, size: int) -> None:
        self.documents.append(document)
        self.size += size


#: Documents ready to be sent, each with its size in bytes. A `None` between them is a point at which the server may
#: run other commands.
Outflow = Iterator[tuple[Any, int] | None]


@dataclass
class _Cursor:
    namespace: str
    flow: Outflow
    used_at: float


class Cursors:
    def __init__(self) -> None:
        self._open: dict[int, _Cursor] = {}
        # a random start, so that numbers of an earlier run of this server do not occur again
        self._numbers = itertools.count(random.getrandbits(48) + 1)

    def first(self, namespace: str, flow: Outflow, size: int, *, single: bool = False, limit: int = 0) -> Answer:
        """The answer with the first batch of `size` documents. The rest of the flow is kept as a cursor, unless
        `single` is set, or the batch has reached the `limit`.
        """
        cursor = _Cursor(namespace, flow, monotonic())
        batch, rest = yield from _take(cursor.flow, size)
        number = 0
        if rest is not None and not single and not 0 < limit <= len(batch):
            number = next(self._numbers)
            self._keep(number, cursor, rest)
        return {"cursor": {"firstBatch": batch, "id": Int64(number), "ns": namespace}}

    def next(self, number: int, namespace: str, size: int) -> Answer:
        """The answer with the next batch; `size` 0: as many documents as fit. Raises `CursorNotFound`."""
        cursor = self._open.get(number)
        if cursor is None or cursor.namespace != namespace:
            raise MongoError(Code.CursorNotFound, f"cursor id {number} not found")
        del self._open[number]
        batch, rest = yield from _take(cursor.flow, size or None)
        if rest is not None:
            self._keep(number, cursor, rest)
        return {"cursor": {"nextBatch": batch, "id": Int64(number if rest is not None else 0), "ns": namespace}}

    def kill(self, numbers: list[int]) -> Document:
        killed = [number for number in numbers if self._open.pop(number, None)]
        unknown = [number for number in numbers if number not in killed]
        return {
            "cursorsKilled": list(map(Int64, killed)),
            "cursorsNotFound": list(map(Int64, unknown)),
            "cursorsAlive": [],
            "cursorsUnknown": [],
        }

    def _forget_idle(self) -> None:
        oldest = monotonic() - _IDLE_SECONDS
        for number in [number for number, cursor in self._open.items() if cursor.used_at < oldest]:
            del self._open[number]

    def clear(self) -> None:
        self._open.clear()

    def _keep(self, number: int, cursor: _Cursor, rest: Outflow) -> None:
        self._forget_idle()
        cursor.flow, cursor.used_at = rest, monotonic()
        self._open[number] = cursor


def _take(flow: Outflow, size: int | None) -> Any:
    """A batch, and the flow of the remaining documents (`None`: there are none)."""
    batch = Batch()
    if size == 0:
        return batch.documents, flow
    for item in flow:
        if item is None:
            yield
            continue
        if not batch.has_room(item[1]):
            return batch.documents, itertools.chain([item], flow)
        batch.add(*item)
        if len(batch.documents) == size:
            return batch.documents, flow
    return batch.documents, None
