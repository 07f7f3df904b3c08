"""`GET /jobs/{job_id}/items`, and the items of a schedule's runs: the results, during the crawl and after it."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated
from urllib.parse import quote

from attrs import define, field
from fastapi import Query, Response

from gateway.access.keys import Scope
from gateway.clock import to_iso
from gateway.errors import InvalidRequestError, JobNotFoundError, ScheduleNotFoundError
from gateway.items.formats import FORMATS, CsvFormat, ItemFormat, Row
from gateway.items.items import Item, ItemsLook, ItemStore, search
from gateway.items.tables import BATCH, TABLES, TableFile, TableSpace
from gateway.jobs.job import Job
from gateway.schedules.store import JobOrSchedule, RunOf
from gateway.web.authorisation import needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts, Router, ScheduleId
from gateway.web.errors import Responses, problems
from gateway.web.lasting import Download
from gateway.web.schemas.schedule import LAST_RUN, ScheduleItemsQuery
from gateway.web.schemas.types import ItemsQuery, RowsQuery
from gateway.web.threads import Threads, Visitor, current_visitor

#: Bytes of output that a batch should have. The number of items in a batch follows from it.
_BATCH_BYTES = 1 << 20
_MAX_BATCH = 500
#: A page ends here even if it has fewer items than were asked for; its `next` goes on.
_PAGE_BYTES = 8 << 20
#: Bytes of a file that are read at a time.
_PIECE = 1 << 18
#: Seconds after which a search answers with what it has found; its `next` goes on.
_SEARCH_SECONDS = 2.0


@define(eq=False, repr=False, slots=False)
class ItemPages:
    """Reads items, one batch after the other."""

    _store: ItemStore
    _job_id: str
    #: `None` for all attempts.
    _attempt: int | None
    #: A cursor: `<attempt>-<offset>` of an item.
    _after: str | None
    #: The prefix of cursors that are given out.
    _prefix: str = ""
    #: Only items with this text.
    text: str | None = None
    count: int = field(init=False, default=0)
    #: How many items were read to find `count` items.
    looked_at: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._last = None if self._after is None else _item_at(self._job_id, self._after)

    def first(self, count: int) -> list[Row]:
        """The first items of all, wherever this begins."""
        return [item.row for item in self._store.page(self._job_id, self._attempt, None, count)]

    def next(self, most: int) -> list[Row] | None:
        """Up to `most` of the next items; empty if none is found yet, `None` at the end."""
        look = self._look(most)
        if look.last is None:
            return None
        self._last = look.last
        self.count += len(look.items)
        self.looked_at += look.looked_at
        return [item.row for item in look.items]

    def left(self) -> int:
        """How many items are still to be looked at."""
        return self._store.count(self._job_id, self._attempt, after=self._last)

    def following(self) -> str | None:
        """The cursor of what follows; `None` if nothing does."""
        if self._last is None or not self._page(1):
            return None
        _, attempt, end = self._last.split(":")
        return f"{self._prefix}{int(attempt)}-{int(end)}"

    def _look(self, limit: int) -> ItemsLook:
        if self.text is not None:
            return search(self._store.look(self._job_id, self._attempt, self._last), limit, self.text)
        items = self._page(limit)
        return ItemsLook(items, len(items), items[-1].id if items else None)

    def _page(self, limit: int) -> list[Item]:
        return self._store.page(self._job_id, self._attempt, self._last, limit)


@define(eq=False, repr=False, slots=False)
class ItemExport:
    """Encodes what `ItemPages` reads."""

    _pages: ItemPages
    _encoder: ItemFormat
    _is_begun: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._batch = self._encoder.first_batch

    def next_batch(self, most: int | None = None) -> bytes | None:
        """The next items, encoded, `most` at most; empty if none is found yet, `None` at the end."""
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
        """Up to `limit` items as one complete document, and the cursor of what follows."""
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

    async def stream(self, threads: Threads, first: bytes | None) -> AsyncIterator[bytes]:
        """All items. `first` was read before the answer began, so that an absent store still leads to an error."""
        data = first
        while data is not None:
            yield data
            data = await threads.run(self.next_batch)
        yield self._encoder.end(None)


def _until(pages: ItemPages) -> float:
    """When a page of a search ends, on the monotonic clock."""
    return math.inf if pages.text is None else time.monotonic() + _SEARCH_SECONDS


def _item_at(job_id: str, cursor: str) -> str:
    attempt, _, end = cursor.partition("-")
    return Item(job_id, int(attempt), int(end), None).id


router = Router()

#: What some system does not take in a file's name, and what hides how a name ends.
_UNFIT_FOR_A_FILE = re.compile(r"[^\w .-]")
#: Most characters of a spider's name in a file's name.
_NAME_LENGTH = 100

#: The cursor of the next page, for the formats that have no place for one.
NEXT_HEADER = "X-Next"
#: How many items a search has looked at for this page.
SEARCHED_HEADER = "X-Searched"
#: The run of a schedule that the items belong to.
RUN_HEADER = "X-Run"
#: The header that says when an old job's items were removed. Without it, an empty answer means that none were found.
REMOVED_HEADER = "X-Removed-At"
_JSON_SCHEMA = {
    "type": "object",
    "required": ["items", "next"],
    "properties": {
        "items": {"type": "array", "items": {"type": "object"}},
        "next": {"type": ["string", "null"], "description": "The value of `after` for the next page."},
    },
}
_CONTENT = {
    "application/json": {
        "schema": _JSON_SCHEMA,
        "example": {"items": [{"url": "https://example.com/"}], "next": None},
    },
    "application/x-ndjson": {"schema": {"type": "string"}, "example": '{"url":"https://example.com/"}\n'},
    "text/csv": {"schema": {"type": "string"}, "example": "url\r\nhttps://example.com/\r\n"},
    **{
        table.media_type: {"schema": {"type": "string", "contentMediaType": table.media_type}}
        for table in TABLES.values()
    },
}
_OK = {
    "description": "The items, in the order they were scraped.",
    "content": _CONTENT,
    "headers": {
        NEXT_HEADER: {"description": "With `limit`, if more items follow: the value of `after` for the next page.",
                      "schema": {"type": "string"}},
        SEARCHED_HEADER: {"description": "With `q` and `limit`: how many items were looked at for this page.",
                          "schema": {"type": "integer"}},
        RUN_HEADER: {"description": "For a schedule: the job of the run that the items are from.",
                     "schema": {"type": "string"}},
        REMOVED_HEADER: {"description": "When the items were removed because their retention time was over.",
                         "schema": {"type": "string", "format": "date-time"}},
    },
}  # fmt: skip
_RESPONSES: Responses = {200: _OK, **problems(404, 503)}


@router.get(
    "/jobs/{job_id}/items", summary="Download items", tags=["jobs"], response_class=Response, responses=_RESPONSES
)
@needs(Scope.READ)
async def get_items(job_id: JobId, query: Annotated[ItemsQuery, Query()], parts: Parts) -> Response:
    """Without `limit`, streams all items that there are at this moment; XLSX and Parquet are made before the answer
    begins. A CSV has the columns of the first hundred items, or those that `fields` names, the same on every page.
    With `q`, a page ends after two seconds: it may have fewer items than `limit`, or none, and its `next` goes on.
    For a schedule, these are the items of the run under way, or of the one before.
    """
    return await _items(parts, job_id, query)


@router.get(
    "/schedules/{schedule_id}/items",
    summary="Download the items of a schedule's run",
    tags=["schedules"],
    response_class=Response,
    responses=_RESPONSES,
)
@needs(Scope.READ)
async def get_run_items(
    schedule_id: ScheduleId, query: Annotated[ScheduleItemsQuery, Query()], parts: Parts
) -> Response:
    """As `GET /jobs/{job_id}/items`, for one run. The pages that follow stay with the run of the first page."""
    if not await parts.threads.look(parts[JobOrSchedule].is_schedule, schedule_id):
        raise ScheduleNotFoundError(schedule_id)
    run = None if query.run == LAST_RUN else query.run
    return await _items(parts, schedule_id, query, run)


async def _items(parts: GatewayParts, identity: str, query: ItemsQuery, run: str | None = None) -> Response:
    is_table = query.format in TABLES
    if query.limit is None or is_table:
        parts.answers.take()
    page_of, _, after = (query.after or "").rpartition(".")
    named = await parts.threads.look(parts[JobOrSchedule].find, identity, page_of or run)
    job = named.job if isinstance(named, RunOf) else named
    _require_same_run(job, page_of, run)
    prefix = f"{job.id}." if job and isinstance(named, RunOf) else ""
    attempt = attempt_of(job, query.attempt)
    pages = ItemPages(parts[ItemStore], job.id if job else identity, attempt, after or None, prefix, query.q)
    headers = _headers(job, identity, query.format)
    if is_table:
        return await _table(parts, query, pages, headers)
    encoder = _encoder(query)
    export = ItemExport(pages, encoder)
    if query.limit is None:
        first = await parts.threads.run(export.next_batch)
        return Download(
            export.stream(parts.threads, first), parts.answers, headers=headers, media_type=encoder.media_type
        )
    data, following = await parts.threads.run(export.page, query.limit)
    headers |= _headers_of_page(pages, following)
    return Response(data, headers=headers, media_type=encoder.media_type)


def _headers_of_page(pages: ItemPages, following: str | None) -> dict[str, str]:
    found = {NEXT_HEADER: following} if following else {}
    return found if pages.text is None else {**found, SEARCHED_HEADER: str(pages.looked_at)}


def _encoder(query: ItemsQuery) -> ItemFormat:
    """Raises `InvalidRequestError`."""
    if query.format == "csv":
        return csv_encoder(query, query.field_names)
    _refuse_options_of_csv(query)
    return FORMATS[query.format](query.field_names)


def _refuse_options_of_csv(query: ItemsQuery) -> None:
    for name in ("escape_formulas", "bom"):
        if getattr(query, name):
            raise InvalidRequestError(name, "is for format=csv: the other formats do not need it")


def csv_encoder(query: RowsQuery, columns: Sequence[str]) -> CsvFormat:
    return CsvFormat(columns, escape_formulas=query.escape_formulas is not False, bom=bool(query.bom))


# --- XLSX and Parquet, which are complete before the answer begins


async def _table(parts: GatewayParts, query: ItemsQuery, pages: ItemPages, headers: dict[str, str]) -> Response:
    _refuse_options_of_csv(query)
    table = await parts.threads.run(TableFile, query.format, parts[TableSpace], query.field_names)
    making = ItemTable(pages, table, query.limit)
    (current_visitor() or Visitor("")).at_end(table.close)
    for step in (making.refuse_if_too_many, making.read, table.write):
        while await parts.threads.run(step):
            _stop_if_gone()
    if query.limit is not None:
        headers |= _headers_of_page(pages, await parts.threads.run(pages.following))
    headers["Content-Length"] = str(table.size)
    return Download(making.stream(parts.threads), parts.answers, headers=headers, media_type=table.format.media_type)


def _stop_if_gone() -> None:
    """Raise what a call gets that waits when the client goes: nobody needs the file any more."""
    visitor = current_visitor()
    if visitor is not None and visitor.is_gone:
        raise asyncio.CancelledError


@define(eq=False, repr=False, slots=False)
class ItemTable:
    """Fills a table, in steps of which none keeps others waiting for long."""

    _pages: ItemPages
    _table: TableFile
    #: Most items.
    _limit: int | None

    def __attrs_post_init__(self) -> None:
        self._until = math.inf if self._limit is None else _until(self._pages)

    def refuse_if_too_many(self) -> None:
        """Before anything is read, if all of it would be in the table. Raises `TooManyRowsError`."""
        if self._limit is None and self._pages.text is None and self._table.format.most_rows is not None:
            self._table.require_rows(self._pages.left())

    def read(self) -> bool:
        """Take the next items. Returns whether there may be more to take."""
        most = BATCH if self._limit is None else min(BATCH, self._limit - self._pages.count)
        rows = self._pages.next(most) if most and time.monotonic() < self._until else None
        self._table.add(rows or ())
        return rows is not None

    async def stream(self, threads: Threads) -> AsyncIterator[bytes]:
        while data := await threads.run(self._table.read, _PIECE):
            yield data


def _require_same_run(job: Job | None, page_of: str, run: str | None) -> None:
    """Raise `InvalidRequestError` for a cursor of another run, `JobNotFoundError` if there is no such run."""
    if page_of and (job is None or job.id != page_of or run not in {None, page_of}):
        raise InvalidRequestError("after", "is the cursor of another run; use the `next` of the previous page")
    if run and not page_of and (job is None or job.id != run):
        raise JobNotFoundError(run)


def _headers(job: Job | None, identity: str, extension: str) -> dict[str, str]:
    headers = {"Content-Disposition": attachment(job, identity, extension)}
    if job is not None and job.id != identity:
        headers[RUN_HEADER] = job.id
    if job is not None and job.items_removed_at is not None:
        headers[REMOVED_HEADER] = to_iso(job.items_removed_at)
    return headers


def attachment(job: Job | None, identity: str, extension: str, kind: str = "") -> str:
    """The header that names a download: `<spider>-<kind>-<day of its start>`, or its id while there is no run."""
    parts = [identity, kind]
    if job is not None:
        spider = _UNFIT_FOR_A_FILE.sub("_", job.spec.spider)[:_NAME_LENGTH].strip(" ._") or job.id
        parts = [spider, kind, f"{job.started_at or job.created_at:%Y-%m-%d}"]
    name = "-".join(filter(None, parts)) + f".{extension}"
    plain = name.encode("ascii", "replace").decode().replace("?", "_")
    return f'attachment; filename="{plain}"' + ("" if plain == name else f"; filename*=UTF-8''{quote(name, safe='')}")


def attempt_of(job: Job | None, wanted: str | None) -> int | None:
    """`None` for every attempt; 0, which has no items, while there is no attempt. Raises `InvalidRequestError`."""
    if wanted == "all":
        return None
    if wanted is None:
        return job.newest if job else 0
    if job is None:
        raise InvalidRequestError("attempt", "there is none yet")
    job.require_attempt(int(wanted))
    return int(wanted)
