"""Items from the spool into MongoDB, in batches; one that is refused is never in the way of the others."""

from __future__ import annotations

import errno

import structlog

from gateway.domain.node_files import ITEMS, HostileFileError, file_size, read_part
from gateway.storage.items import Item, ItemStore
from gateway.tailer.attempt import Attempt
from gateway.tailer.item_line import MAX_ITEM, as_text, parse_item, too_large

log = structlog.get_logger()

#: A batch: whichever is reached first. A line longer than that is a batch of its own.
BATCH_ITEMS = 500
BATCH_BYTES = 1 << 20
#: Batches of a line that is too large for an item in which its end is looked for, before others have their turn; and
#: bytes after which it is not looked for any more.
SEARCHED_AT_ONCE = 16
LONGEST_LINE = 1 << 30


class ItemShipper:
    def __init__(self, store: ItemStore) -> None:
        self._store = store

    def ship(self, attempt: Attempt, *, ended: bool) -> bool:
        """Ship one batch; whether there may be more. Raises `OSError` and PyMongo's errors, having moved nothing."""
        start = attempt.checkpoint.items
        items, end, more = self._next_batch(attempt, start)
        if items:
            self._insert(items)
        attempt.checkpoint.items = end
        if ended and not more:
            self._look_at_rest(attempt, end)
        return more

    def _next_batch(self, attempt: Attempt, start: int) -> tuple[list[Item], int, bool]:
        data = read_part(attempt.folder / ITEMS, start, BATCH_BYTES)
        if b"\n" not in data and len(data) == BATCH_BYTES:
            return _long_line(attempt, start)
        items: list[Item] = []
        position = 0
        while len(items) < BATCH_ITEMS and (newline := data.find(b"\n", position)) >= 0:
            line = data[position:newline]
            position = newline + 1
            if line.strip():
                items.append(parse_item(attempt.id, start + position, line))
        return items, start + position, position > 0

    def _insert(self, items: list[Item]) -> None:
        for item in self._store.insert(items):
            log.warning("item_kept_as_text", item=item.id)
            if item.data is None or self._store.insert([as_text(item)]):
                raise ValueError(f"MongoDB takes {item.id} in no form")

    def _look_at_rest(self, attempt: Attempt, start: int) -> None:
        """Raises `HostileFileError` where there is less than was read before."""
        path = attempt.folder / ITEMS
        if torn := read_part(path, start, BATCH_BYTES):
            log.warning("torn_item", attempt=str(attempt.id), begin=torn[:200].decode("utf-8", "replace"))
        elif (size := file_size(path)) < start:
            raise HostileFileError(errno.EIO, f"{ITEMS} was cut to {size} bytes when {start} were read")


def _long_line(attempt: Attempt, start: int) -> tuple[list[Item], int, bool]:
    """The one line at `start`, if its end is there, and whether there may be more. Beyond `MAX_ITEM` it is only
    measured, a piece at a time. Raises `HostileFileError` for one that does not end.
    """
    path = attempt.folder / ITEMS
    data = read_part(path, start, MAX_ITEM + 1)
    if (newline := data.find(b"\n")) >= 0:
        end = start + newline + 1
        return [parse_item(attempt.id, end, data[:newline])], end, True
    head, position = data[:BATCH_BYTES], max(start + len(data), attempt.items_searched)
    for _ in range(SEARCHED_AT_ONCE):
        data = read_part(path, position, BATCH_BYTES)
        if (newline := data.find(b"\n")) >= 0:
            end = position + newline + 1
            return [too_large(attempt.id, end, end - 1 - start, head)], end, True
        attempt.items_searched = position = position + len(data)
        if position - start > LONGEST_LINE:
            raise HostileFileError(errno.EFBIG, f"{ITEMS} has a line of more than {LONGEST_LINE} bytes")
    return [], start, len(data) == BATCH_BYTES
