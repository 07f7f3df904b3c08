"""`GET /jobs/{job_id}/items`, and the items of a schedule's runs: the results, during the crawl and after it."""

from __future__ import annotations

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
from gateway.items.items import FORMATS, CsvFormat, Item, ItemFormat, ItemsLook, ItemStore, search
from gateway.jobs.job import Job
from gateway.schedules.store import JobOrSchedule, RunOf
from gateway.web.authorisation import needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts, Router, ScheduleId
from gateway.web.errors import Responses, problems
from gateway.web.lasting import Download
from gateway.web.schemas.schedule import LAST_RUN, ScheduleItemsQuery
from gateway.web.schemas.types import ItemsQuery, RowsQuery
from gateway.web.threads import Threads

#: Bytes of output that a batch should have. The number of items in a batch follows from it.
_BATCH_BYTES = 1 << 20
_MAX_BATCH = 500
#: A page ends here even if it has fewer items than were asked for; its `next` goes on.
_PAGE_BYTES = 8 << 20
#: Seconds after which a search answers with what it has found; its `next` goes on.
_SEARCH_SECONDS = 2.0


@define(eq=False, repr=False, slots=False)
class ItemExport:
    _store: ItemStore
    _job_id: str
    #: `None` for all attempts.
    _attempt: int | None
    #: A cursor: `<attempt>-<offset>` of an item.
    _after: str | None
    _encoder: ItemFormat
    #: The prefix of cursors that are given out.
    _prefix: str = ""
    #: Only items with this text.
    _text: str | None = None
    _is_begun: bool = field(init=False, default=False)
    count: int = field(init=False, default=0)
    #: How many items were read to find `count` items.
    looked_at: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._last = None if self._after is None else _item_at(self._job_id, self._after)
        self._batch = self._encoder.first_batch

    def next_batch(self, most: int | None = None) -> bytes | None:
        """The next items, encoded, `most` at most; empty if none is found yet, `None` at the end."""
        if not self._is_begun:
            self._is_begun = True
            self._encoder.begin(lambda count: self._store.page(self._job_id, self._attempt, None, count))
        look = self._look(self._batch if most is None else min(self._batch, most))
        if look.last is None:
            return None
        self._last = look.last
        self.count += len(look.items)
        self.looked_at += look.looked_at
        if not look.items:
            return b""
        data = self._encoder.encode(look.items)
        self._batch = max(1, min(_MAX_BATCH, _BATCH_BYTES * len(look.items) // max(1, len(data))))
        return data

    def page(self, limit: int) -> tuple[bytes, str | None]:
        """Up to `limit` items as one complete document, and the cursor of what follows."""
        parts: list[bytes] = []
        size, began = 0, time.monotonic()
        while self.count < limit and size < _PAGE_BYTES and (data := self.next_batch(limit - self.count)) is not None:
            parts.append(data)
            size += len(data)
            if self._text is not None and time.monotonic() - began > _SEARCH_SECONDS:
                break
        following = self._cursor() if self._page(1) else None
        return b"".join([*parts, self._encoder.end(following)]), following

    async def stream(self, threads: Threads, first: bytes | None) -> AsyncIterator[bytes]:
        """All items. `first` was read before the answer began, so that an absent store still leads to an error."""
        data = first
        while data is not None:
            yield data
            data = await threads.run(self.next_batch)
        yield self._encoder.end(None)

    def _look(self, limit: int) -> ItemsLook:
        if self._text is not None:
            return search(self._store.look(self._job_id, self._attempt, self._last), limit, self._text)
        items = self._page(limit)
        return ItemsLook(items, len(items), items[-1].id if items else None)

    def _page(self, limit: int) -> list[Item]:
        return self._store.page(self._job_id, self._attempt, self._last, limit)

    def _cursor(self) -> str | None:
        if self._last is None:
            return None
        _, attempt, end = self._last.split(":")
        return f"{self._prefix}{int(attempt)}-{int(end)}"


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
    """Without `limit`, streams all items that there are at this moment. A CSV has the columns of the first hundred
    items, or those that `fields` names, the same on every page. With `q`, a page ends after two seconds: it may have
    fewer items than `limit`, or none, and its `next` goes on. For a schedule, these are the items of the run under
    way, or of the one before.
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
    if query.limit is None:
        parts.answers.take()
    page_of, _, after = (query.after or "").rpartition(".")
    named = await parts.threads.look(parts[JobOrSchedule].find, identity, page_of or run)
    job = named.job if isinstance(named, RunOf) else named
    _require_same_run(job, page_of, run)
    encoder = _encoder(query)
    prefix = f"{job.id}." if job and isinstance(named, RunOf) else ""
    attempt = attempt_of(job, query.attempt)
    export = ItemExport(
        parts[ItemStore], job.id if job else identity, attempt, after or None, encoder, prefix, query.q
    )
    headers = _headers(job, identity, encoder)
    if query.limit is None:
        first = await parts.threads.run(export.next_batch)
        return Download(
            export.stream(parts.threads, first), parts.answers, headers=headers, media_type=encoder.media_type
        )
    data, following = await parts.threads.run(export.page, query.limit)
    if following:
        headers[NEXT_HEADER] = following
    if query.q is not None:
        headers[SEARCHED_HEADER] = str(export.looked_at)
    return Response(data, headers=headers, media_type=encoder.media_type)


def _encoder(query: ItemsQuery) -> ItemFormat:
    """Raises `InvalidRequestError`."""
    if query.format == "csv":
        return csv_encoder(query, query.field_names)
    for name in ("escape_formulas", "bom"):
        if getattr(query, name):
            raise InvalidRequestError(name, "is for format=csv: the other formats are not for spreadsheets")
    return FORMATS[query.format](query.field_names)


def csv_encoder(query: RowsQuery, columns: Sequence[str]) -> CsvFormat:
    return CsvFormat(columns, escape_formulas=query.escape_formulas is not False, bom=bool(query.bom))


def _require_same_run(job: Job | None, page_of: str, run: str | None) -> None:
    """Raise `InvalidRequestError` for a cursor of another run, `JobNotFoundError` if there is no such run."""
    if page_of and (job is None or job.id != page_of or run not in {None, page_of}):
        raise InvalidRequestError("after", "is the cursor of another run; use the `next` of the previous page")
    if run and not page_of and (job is None or job.id != run):
        raise JobNotFoundError(run)


def _headers(job: Job | None, identity: str, encoder: ItemFormat) -> dict[str, str]:
    headers = {"Content-Disposition": attachment(job, identity, encoder.extension)}
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
