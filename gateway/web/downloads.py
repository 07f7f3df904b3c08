"""Rows as a download, in any format: streamed as they are read, or as a table that is complete before the answer
begins.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from attrs import define, field
from fastapi import Response

from gateway.errors import InvalidRequestError
from gateway.items.formats import FORMATS, CsvFormat, ItemFormat, Row
from gateway.items.table_files import BATCH, TABLES, TableFile, TableSpace
from gateway.web.call_queue import Threads, Visitor, current_visitor
from gateway.web.container import GatewayParts
from gateway.web.lasting import Download
from gateway.web.schemas.types import DownloadQuery, RowsQuery

#: Bytes of output that a batch should have. The number of rows in a batch follows from it.
_BATCH_BYTES = 1 << 20
_FIRST_BATCH, _MAX_BATCH = 8, 500
#: A page ends here even if it has fewer rows than were asked for; its `next` goes on.
_PAGE_BYTES = 8 << 20
#: Bytes of a file that are read at a time.
_PIECE = 1 << 18
#: Seconds after which a search answers with what it has found; its `next` goes on.
_SEARCH_SECONDS = 2.0


class RowPages(Protocol):
    """Reads rows, one batch after the other."""

    #: Only rows with this text; `None` for all.
    text: str | None
    #: How many rows were read so far.
    count: int

    def first(self, count: int) -> list[Row]:
        """The first rows of all, wherever this begins."""
        ...

    def next(self, most: int) -> list[Row] | None:
        """Up to `most` of the next rows; empty if none is found yet, `None` at the end."""
        ...

    def left(self) -> int:
        """How many rows are still to be read, or more than that."""
        ...

    def following(self) -> str | None:
        """The cursor of the next page; `None` if there is none."""
        ...


@define(eq=False, repr=False, slots=False)
class RowsExport:
    """Encodes what `RowPages` reads."""

    _pages: RowPages
    _encoder: ItemFormat
    #: How many rows are read next. How large they are is not known before the first ones.
    _batch: int = _FIRST_BATCH
    _is_begun: bool = field(init=False, default=False)

    def next_batch(self, most: int | None = None) -> bytes | None:
        """The next rows, encoded, `most` at most; empty if none is found yet, `None` at the end."""
        if not self._is_begun:
            self._is_begun = True
            self._encoder.begin(self._pages.first)
        rows = self._pages.next(self._batch if most is None else min(self._batch, most))
        if not rows:
            return None if rows is None else b""
        data = self._encoder.encode(rows)
        self._batch = max(1, min(_MAX_BATCH, _BATCH_BYTES * len(rows) // max(1, len(data))))
        return data

    def page(self, limit: int) -> tuple[bytes, str | None]:
        """Up to `limit` rows as one complete document, and the cursor of what follows."""
        parts: list[bytes] = []
        size, until = 0, _until(self._pages)
        while self._pages.count < limit and size < _PAGE_BYTES:
            if (data := self.next_batch(limit - self._pages.count)) is None:
                break
            parts.append(data)
            size += len(data)
            if time.monotonic() > until:
                break
        following = self._pages.following()
        return b"".join([*parts, self._encoder.end(following)]), following

    async def stream(self, threads: Threads, data: bytes | None) -> AsyncIterator[bytes]:
        """All rows. The first `data` was read before the answer began, so that an absent store is still an error."""
        while data is not None:
            yield data
            data = await threads.run(self.next_batch)
        yield self._encoder.end(None)


def _until(pages: RowPages) -> float:
    """When a page of a search ends, on the monotonic clock."""
    return math.inf if pages.text is None else time.monotonic() + _SEARCH_SECONDS


def encoder_of(query: DownloadQuery) -> ItemFormat:
    """The encoder of a format that is no table. Raises `InvalidRequestError`."""
    if query.format == "csv":
        return csv_encoder(query, query.field_names)
    _refuse_options_of_csv(query)
    return FORMATS[query.format](query.field_names)


def _refuse_options_of_csv(query: DownloadQuery) -> None:
    for name in ("escape_formulas", "bom"):
        if getattr(query, name):
            raise InvalidRequestError(name, "is for format=csv: the other formats do not need it")


def csv_encoder(query: RowsQuery, columns: Sequence[str]) -> CsvFormat:
    return CsvFormat(columns, escape_formulas=query.escape_formulas is not False, bom=bool(query.bom))


async def download(
    parts: GatewayParts, query: DownloadQuery, pages: RowPages, headers: Mapping[str, str]
) -> Response:
    """All rows. Take a place among `parts.answers` first. Raises `InvalidRequestError`, and as `TableFile` does."""
    if query.format in TABLES:
        return (await table_of(parts, query, pages)).download(parts, headers)
    encoder = encoder_of(query)
    # what a client does not take stays in memory: a batch, or one row if that is larger
    rows = RowsExport(pages, encoder, 1)
    first = await parts.threads.run(rows.next_batch)
    return Download(rows.stream(parts.threads, first), parts.answers, headers=headers, media_type=encoder.media_type)


# --- XLSX and Parquet, which are complete before the answer begins


async def table_of(parts: GatewayParts, query: DownloadQuery, pages: RowPages, limit: int | None = None) -> RowsTable:
    """A table of all rows, or of so many, that is complete. Raises as `download` does."""
    _refuse_options_of_csv(query)
    table = await parts.threads.run(TableFile, query.format, parts[TableSpace], query.field_names)
    making = RowsTable(pages, table, limit)
    (current_visitor() or Visitor("")).at_end(table.close)
    for step in (making.refuse_if_too_many, making.read, table.write):
        while await parts.threads.run(step):
            _stop_if_gone()
    return making


def _stop_if_gone() -> None:
    """Stop a call that waits if the client has gone: nobody needs the file any more."""
    visitor = current_visitor()
    if visitor is not None and visitor.is_gone:
        raise asyncio.CancelledError


@define(eq=False, repr=False, slots=False)
class RowsTable:
    """Fills a table in short steps, so that others do not wait for long."""

    _pages: RowPages
    _table: TableFile
    #: Maximum number of rows.
    _limit: int | None

    def __attrs_post_init__(self) -> None:
        self._until = math.inf if self._limit is None else _until(self._pages)

    def refuse_if_too_many(self) -> None:
        """Raises `TooManyRowsError` before anything is read, if the table would have too many rows. A table with a
        limit or a search may be shorter, and is not checked.
        """
        if self._limit is None and self._pages.text is None and self._table.format.most_rows is not None:
            self._table.require_rows(self._pages.left())

    def read(self) -> bool:
        """Take the next rows. Returns whether there may be more to take."""
        most = BATCH if self._limit is None else min(BATCH, self._limit - self._pages.count)
        rows = self._pages.next(most) if most and time.monotonic() < self._until else None
        self._table.add(rows or ())
        return rows is not None

    def download(self, parts: GatewayParts, headers: Mapping[str, str]) -> Response:
        """Once it is complete."""
        sized = {**headers, "Content-Length": str(self._table.size)}
        media_type = self._table.format.media_type
        return Download(self._stream(parts.threads), parts.answers, headers=sized, media_type=media_type)

    async def _stream(self, threads: Threads) -> AsyncIterator[bytes]:
        while data := await threads.run(self._table.read, _PIECE):
            yield data
