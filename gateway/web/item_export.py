"""A job's items on their way out: read, encoded and sent in pieces of about one size, however large an item is."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.storage.items import Item, ItemStore
from gateway.web.item_formats import ItemFormat
from gateway.web.thread_pool import ThreadPool

#: Bytes of output a batch should make, which decides how many items it reads.
_BATCH_BYTES = 1 << 20
_MAX_BATCH = 500
#: A page ends here even if it has fewer items than were asked for; its `next` goes on.
_PAGE_BYTES = 8 << 20


class ItemExport:
    """`attempt` is `None` for all of them; `after` is a cursor: `<attempt>-<offset>` of an item. Those given out have
    the `prefix`.
    """

    def __init__(  # noqa: PLR0917 - what, from where, and how
        self,
        store: ItemStore,
        job_id: str,
        attempt: int | None,
        after: str | None,
        encoder: ItemFormat,
        prefix: str = "",
    ) -> None:
        self._store = store
        self._job_id = job_id
        self._attempt = attempt
        self._prefix = prefix
        self._last = None if after is None else _item_at(job_id, after)
        self._encoder = encoder
        self._batch = encoder.first_batch
        self._is_begun = False
        self.count = 0

    def next_batch(self, most: int | None = None) -> bytes:
        """The next items, encoded, `most` at most; empty at the end."""
        if not self._is_begun:
            self._is_begun = True
            self._encoder.begin(lambda count: self._store.page(self._job_id, self._attempt, None, count))
        limit = self._batch if most is None else min(self._batch, most)
        items = self._page(limit)
        if not items:
            return b""
        self._last = items[-1]
        self.count += len(items)
        data = self._encoder.encode(items)
        self._batch = max(1, min(_MAX_BATCH, _BATCH_BYTES * len(items) // max(1, len(data))))
        return data

    def page(self, limit: int) -> tuple[bytes, str | None]:
        """Up to `limit` items as one complete document, and the cursor of what follows."""
        parts: list[bytes] = []
        size = 0
        while self.count < limit and size < _PAGE_BYTES and (data := self.next_batch(limit - self.count)):
            parts.append(data)
            size += len(data)
        following = self._cursor() if self._page(1) else None
        return b"".join([*parts, self._encoder.end(following)]), following

    async def stream(self, pool: ThreadPool, first: bytes) -> AsyncIterator[bytes]:
        """All of it. `first` was read before, so that a store that is away could still be answered with an error."""
        data = first
        while data:
            yield data
            data = await pool.run(self.next_batch)
        yield self._encoder.end(None)

    def _page(self, limit: int) -> list[Item]:
        after = None if self._last is None else self._last.id
        return self._store.page(self._job_id, self._attempt, after, limit)

    def _cursor(self) -> str | None:
        return None if self._last is None else f"{self._prefix}{self._last.attempt}-{self._last.end}"


def _item_at(job_id: str, cursor: str) -> Item:
    attempt, _, end = cursor.partition("-")
    return Item(job_id, int(attempt), int(end), None)
