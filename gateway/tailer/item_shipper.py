"""Items from the spool into MongoDB, in batches; one that is refused is never in the way of the others."""

from __future__ import annotations

import structlog

from gateway.domain.node_files import ITEMS
from gateway.storage.items import Item, ItemStore
from gateway.tailer.attempt import Attempt
from gateway.tailer.item_line import MAX_ITEM, as_text, parse_item, too_large
from gateway.tailer.log_reader import read_bytes

log = structlog.get_logger()

#: A batch: whichever is reached first. A line longer than that is a batch of its own.
BATCH_ITEMS = 500
BATCH_BYTES = 1 << 20


class ItemShipper:
    def __init__(self, store: ItemStore) -> None:
        self._store = store

    def ship(self, attempt: Attempt, *, ended: bool) -> bool:
        """Ship one batch; whether there may be more. Raises PyMongo's errors, and then nothing has moved on."""
        start = attempt.checkpoint.items
        items, end = self._next_batch(attempt, start)
        if items:
            self._insert(items)
        attempt.checkpoint.items = end
        if end == start and ended:
            self._report_torn_line(attempt, start)
        return end > start

    def _next_batch(self, attempt: Attempt, start: int) -> tuple[list[Item], int]:
        data = read_bytes(attempt.folder / ITEMS, start, BATCH_BYTES)
        if b"\n" not in data and len(data) == BATCH_BYTES:
            return _long_line(attempt, start)
        items: list[Item] = []
        position = 0
        while len(items) < BATCH_ITEMS and (newline := data.find(b"\n", position)) >= 0:
            line = data[position:newline]
            position = newline + 1
            if line.strip():
                items.append(parse_item(attempt.id, start + position, line))
        return items, start + position

    def _insert(self, items: list[Item]) -> None:
        for item in self._store.insert(items):
            log.warning("item_kept_as_text", item=item.id)
            if item.data is None or self._store.insert([as_text(item)]):
                raise ValueError(f"MongoDB takes {item.id} in no form")

    def _report_torn_line(self, attempt: Attempt, start: int) -> None:
        torn = read_bytes(attempt.folder / ITEMS, start, BATCH_BYTES)
        if torn:
            log.warning("torn_item", attempt=str(attempt.id), begin=torn[:200].decode("utf-8", "replace"))


def _long_line(attempt: Attempt, start: int) -> tuple[list[Item], int]:
    """The one line at `start`, if its end is there. Beyond `MAX_ITEM` it is only measured."""
    path = attempt.folder / ITEMS
    data = read_bytes(path, start, MAX_ITEM + 1)
    if (newline := data.find(b"\n")) >= 0:
        end = start + newline + 1
        return [parse_item(attempt.id, end, data[:newline])], end
    head, position = data[:BATCH_BYTES], start + len(data)
    while data:
        data = read_bytes(path, position, BATCH_BYTES)
        if (newline := data.find(b"\n")) >= 0:
            end = position + newline + 1
            return [too_large(attempt.id, end, end - 1 - start, head)], end
        position += len(data)
    return [], start
