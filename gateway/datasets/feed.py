"""Reading a dataset: its changes in the order of their numbers, and its items as they are or were."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from attrs import define, field

from gateway.datasets.dataset import SHOWN, ChangeType, Dataset, ItemChange, Record, change_id
from gateway.datasets.fold_plan import row_of
from gateway.datasets.store import ChangeStore, DatasetStore, RecordStore, RunStore
from gateway.errors import ConflictError, CursorExpiredError, InvalidRequestError
from gateway.items.items import has_text

#: Changes, or records, that are read at a time.
_BATCH = 500
#: Seconds after which a page ends with the changes found so far; its `next` continues from there.
PAGE_SECONDS = 2.0


class ChangePage(NamedTuple):
    changes: list[ItemChange]
    #: The number after which the next page begins.
    next: int
    #: The number of the last change that is visible.
    last: int


class RecordPage(NamedTuple):
    records: list[Record]
    #: The key hash after which the next page begins; `None` after the last.
    next: str | None


@define(eq=False, repr=False, slots=False, kw_only=True)
class DatasetFeed:
    _records: RecordStore
    _changes: ChangeStore
    _runs: RunStore

    def changes(self, dataset: Dataset, since: int, limit: int, types: Collection[ChangeType] = SHOWN) -> ChangePage:
        """Up to `limit` changes with numbers above `since`. Raises `CursorExpiredError` if some of these changes are
        deleted already, and `InvalidRequestError` if `since` is beyond the last change.
        """
        self._require(dataset, since, "since")
        found: list[ItemChange] = []
        began, last, place = time.monotonic(), since, change_id(dataset.id, since + 1)
        while last < dataset.head_seq and time.monotonic() - began < PAGE_SECONDS:
            read, is_cut = self._changes.page(dataset.id, place, dataset.head_seq, _BATCH)
            plans = self._plans(dataset, last, read[-1].seq) if read else ()
            for change in read:
                if change.plan in plans:
                    found += [change] if change.type in types else []
                    last = change.seq
                if len(found) >= limit:
                    return ChangePage(found, last, dataset.head_seq)
            if not is_cut and len(read) < _BATCH:
                last = dataset.head_seq
                break
            # abandoned plans may have changes with the same number, so the published one may be in the next batch
            place, last = read[-1].id, max(last, read[-1].seq - 1)
            if is_cut and found:
                break
        return ChangePage(found, last, dataset.head_seq)

    def cursor(self, dataset: Dataset, since: int | datetime) -> int:
        """The cursor for `since`. For a time, it is the cursor before the first change of the published runs that
        have ended since then.
        """
        if isinstance(since, int):
            return since
        first = self._runs.first_seq(dataset.id, since)
        return dataset.head_seq if first is None else first - 1

    def items(
        self,
        dataset: Dataset,
        after: str,
        limit: int,
        *,
        as_of: int | None = None,
        removed: bool = False,
        text: str | None = None,
    ) -> RecordPage:
        """Up to `limit` items in the order of their keys' hashes, as they were right after the change `as_of`.
        `removed`: also return removed items; `text`: return only items with this text. Raises the errors of `changes`
        for `as_of`, and `ConflictError` if changes up to `as_of` are still being applied.
        """
        if as_of is not None:
            self._require(dataset, as_of, "as_of")
            # the records of new items may not be written yet
            if as_of > dataset.applied_seq:
                raise ConflictError(f"changes after {dataset.applied_seq} are still being applied: ask again soon")
        wanted = text.casefold() if text else None
        found: list[Record] = []
        began = time.monotonic()
        while time.monotonic() - began < PAGE_SECONDS:
            read, is_cut = self._records.page(dataset.id, after, min(_BATCH, limit + 1))
            for record in read:
                if len(found) >= limit:
                    return RecordPage(found, after)
                after = record.key_hash
                then = record if as_of is None or record.seq <= as_of else self._before(dataset, record, as_of)
                if then is None or (then.removed and not removed):
                    continue
                if wanted is None or has_text(row_of(then), wanted):
                    found.append(then)
            if not is_cut and len(read) < min(_BATCH, limit + 1):
                return RecordPage(found, None)
            if is_cut and found:
                break
        return RecordPage(found, after)

    def _before(self, dataset: Dataset, record: Record, as_of: int) -> Record | None:
        """The record as it was right after the change `as_of`; `None` if the item was not known yet."""
        for identity, seq, plan in self._changes.of_key(dataset.id, record.key_hash, as_of):
            if plan in self._plans(dataset, seq - 1, as_of) and (change := self._changes.get(identity)) is not None:
                return Record.model_validate(change.to_record())
        return None

    def _plans(self, dataset: Dataset, since: int, until: int) -> set[str]:
        head = {dataset.head_plan} if dataset.head_plan else set()
        return self._runs.plans(dataset.id, since, until) | head

    def _require(self, dataset: Dataset, cursor: int, name: str) -> None:
        if cursor > dataset.head_seq:
            raise InvalidRequestError(name, f"is beyond the last change, {dataset.head_seq}")
        if cursor < dataset.floor_seq:
            raise CursorExpiredError(
                f"changes up to {dataset.floor_seq} are no longer kept: read the items, and go on after their `seq`",
                detail={"snapshot": f"/datasets/{dataset.name}/items", "since": dataset.applied_seq},
            )


def _whole(read: list[ItemChange], head: int) -> int:
    """The last number whose changes were all read: a batch may end between two changes with the same number."""
    return read[-1].seq if len(read) < _BATCH or read[-1].seq >= head else max(read[-1].seq - 1, read[0].seq)


# --- waiting for changes: one query serves any number of readers

#: Seconds between two queries.
LOOK_SECONDS = 0.5


@define(eq=False, repr=False, slots=False)
class FeedWatch:
    """Waits until datasets get changes. For one event loop. `_ask` runs a store's method in a thread."""

    _datasets: DatasetStore
    _ask: Callable[..., Awaitable[Any]]
    #: By dataset id: the event of each reader that waits, and the `head_seq` that the reader has already.
    _waiting: dict[str, dict[asyncio.Event, int]] = field(init=False, factory=dict)
    _task: asyncio.Task[None] | None = field(init=False, default=None)

    async def changed(self, dataset: Dataset, seconds: float) -> None:
        """Return once the dataset has changes after its `head_seq`, but after `seconds` at the latest."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault(dataset.id, {})
        waiting[event] = dataset.head_seq
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_on())
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), seconds)
        finally:
            del waiting[event]
            if not waiting:
                self._waiting.pop(dataset.id, None)

    async def _look_on(self) -> None:
        while self._waiting:
            await asyncio.sleep(LOOK_SECONDS)
            # while the store does not answer, the readers go on waiting
            with suppress(Exception):
                heads = await self._ask(self._datasets.heads, list(self._waiting))
                for dataset_id, waiting in self._waiting.items():
                    for event, known in waiting.items():
                        if heads.get(dataset_id, -1) != known:
                            event.set()
