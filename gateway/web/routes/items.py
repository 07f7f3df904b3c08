"""`GET /jobs/{job_id}/items`, and the items of a schedule's runs: the results, during the crawl and after it."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import quote

from attrs import define, field
from fastapi import Query, Response
from pydantic import BaseModel, Field

from gateway.access.keys import Scope
from gateway.clock import to_iso
from gateway.errors import InvalidRequestError, JobNotFoundError, ScheduleNotFoundError
from gateway.items.formats import Row
from gateway.items.items import Item, ItemsLook, ItemStore, search
from gateway.items.table_files import TABLES
from gateway.jobs.job import Job
from gateway.schedules.store import JobOrSchedule, RunOf
from gateway.web.authorisation import needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts, Router, ScheduleId
from gateway.web.downloads import RowsExport, download, encoder_of, table_of
from gateway.web.errors import Responses, problems
from gateway.web.schemas.schedule import LAST_RUN, ScheduleItemsFileQuery, ScheduleItemsQuery
from gateway.web.schemas.types import ItemsFileQuery, ItemsQuery


@define(eq=False, repr=False, slots=False)
class ItemPages:
    """Reads items, one batch after the other."""

    _store: ItemStore
    _job_id: str
    #: `None` for all attempts.
    _attempt: int | None
    #: A cursor: `<attempt>-<offset>` of an item.
    _after: str | None
    #: The prefix of the cursors in answers.
    _prefix: str = ""
    #: Only items with this text.
    text: str | None = None
    count: int = field(init=False, default=0)
    #: How many items were read to find `count` items.
    looked_at: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._last = None if self._after is None else _item_at(self._job_id, self._after)

    def first(self, count: int) -> list[Row]:
        """The first items of the crawl, even if this reader begins later."""
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
        """How many items are still to be read."""
        return self._store.count(self._job_id, self._attempt, after=self._last)

    def following(self) -> str | None:
        """The cursor of the next page; `None` if there is none."""
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


def _item_at(job_id: str, cursor: str) -> str:
    attempt, _, end = cursor.partition("-")
    return Item(job_id, int(attempt), int(end), None).id


router = Router()

#: Characters that some system does not allow in file names, or that can hide the ending of a name.
_UNFIT_FOR_A_FILE = re.compile(r"[^\w .-]")
#: Maximum number of characters of a spider's name in a file's name.
_NAME_LENGTH = 100

#: The cursor of the next page, for the formats that have no place for one.
NEXT_HEADER = "X-Next"
#: The header that says how many items a search has read for this page.
SEARCHED_HEADER = "X-Searched"
#: The run of a schedule that the items belong to.
RUN_HEADER = "X-Run"
#: The header that says when an old job's items were removed. Without it, an empty answer means that none were found.
REMOVED_HEADER = "X-Removed-At"


class ItemsPage(BaseModel):
    """Items as `format=json`. A field that the spider did not find is missing, or null."""

    items: list[dict[str, Any]]
    next: str | None = Field(description="The value of `after` for the next page.")


#: Of files, in OpenAPI. All kinds are bytes, because generators take the schema of one of them for all.
FILE_CONTENT = {
    kind: {"schema": {"type": "string", "format": "binary"}}
    for kind in (
        *("application/octet-stream", "application/json", "application/x-ndjson", "text/csv"),
        *(table.media_type for table in TABLES.values()),
    )
}
_CONTENT = {"application/json": {"example": {"items": [{"url": "https://example.com/"}], "next": None}}}
_HEADERS = {
    NEXT_HEADER: {"description": "With `limit`, if more items follow: the value of `after` for the next page.",
                  "schema": {"type": "string"}},
    SEARCHED_HEADER: {"description": "With `q` and `limit`: how many items were looked at for this page.",
                      "schema": {"type": "integer"}},
    RUN_HEADER: {"description": "For a schedule: the job of the run that the items are from.",
                 "schema": {"type": "string"}},
    REMOVED_HEADER: {"description": "When the items were removed because their retention time was over.",
                     "schema": {"type": "string", "format": "date-time"}},
}  # fmt: skip
_OK = {
    "description": "The items, in the order they were scraped.",
    "model": ItemsPage,
    "content": _CONTENT,
    "headers": _HEADERS,
}
_RESPONSES: Responses = {200: _OK, **problems(404, 503)}
_FILE_RESPONSES: Responses = {
    200: {
        "description": "The items, in the order they were scraped, as the file that `format` names.",
        "content": FILE_CONTENT,
        "headers": {name: header for name, header in _HEADERS.items() if name in {RUN_HEADER, REMOVED_HEADER}},
    },
    **problems(404, 503),
}


@router.get(
    "/jobs/{job_id}/items", summary="List items", tags=["jobs"], response_class=Response, responses=_RESPONSES
)
@needs(Scope.READ)
async def list_job_items(job_id: JobId, query: Annotated[ItemsQuery, Query()], parts: Parts) -> Response:
    """Without `limit`, streams all items that there are at this moment. With `q`, a page ends after two seconds: it
    may have fewer items than `limit`, or none, and its `next` goes on. For a schedule, these are the items of the run
    under way, or of the one before.
    """
    return await _items(parts, job_id, query)


@router.get(
    "/jobs/{job_id}/items/download",
    summary="Download items",
    tags=["jobs"],
    response_class=Response,
    responses=_FILE_RESPONSES,
)
@needs(Scope.READ)
async def download_job_items(job_id: JobId, query: Annotated[ItemsFileQuery, Query()], parts: Parts) -> Response:
    """All items that there are at this moment; XLSX and Parquet are made before the answer begins. A CSV has the
    columns of the first hundred items, or those that `fields` names.
    """
    return await _items(parts, job_id, ItemsQuery.model_construct(**dict(query)))


@router.get(
    "/schedules/{schedule_id}/items",
    summary="List the items of a schedule's run",
    tags=["schedules"],
    response_class=Response,
    responses=_RESPONSES,
)
@needs(Scope.READ)
async def list_schedule_items(
    schedule_id: ScheduleId, query: Annotated[ScheduleItemsQuery, Query()], parts: Parts
) -> Response:
    """As `GET /jobs/{job_id}/items`, for one run. The pages that follow stay with the run of the first page."""
    return await _of_schedule(parts, schedule_id, query)


@router.get(
    "/schedules/{schedule_id}/items/download",
    summary="Download the items of a schedule's run",
    tags=["schedules"],
    response_class=Response,
    responses=_FILE_RESPONSES,
)
@needs(Scope.READ)
async def download_schedule_items(
    schedule_id: ScheduleId, query: Annotated[ScheduleItemsFileQuery, Query()], parts: Parts
) -> Response:
    """As `GET /jobs/{job_id}/items/download`, for one run."""
    return await _of_schedule(parts, schedule_id, ScheduleItemsQuery.model_construct(**dict(query)))


async def _of_schedule(parts: GatewayParts, schedule_id: str, query: ScheduleItemsQuery) -> Response:
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
    if query.limit is None:
        return await download(parts, query, pages, headers)
    if is_table:
        table = await table_of(parts, query, pages, query.limit)
        headers |= _headers_of_page(pages, await parts.threads.run(pages.following))
        return table.download(parts, headers)
    encoder = encoder_of(query)
    data, following = await parts.threads.run(RowsExport(pages, encoder).page, query.limit)
    headers |= _headers_of_page(pages, following)
    return Response(data, headers=headers, media_type=encoder.media_type)


def _headers_of_page(pages: ItemPages, following: str | None) -> dict[str, str]:
    found = {NEXT_HEADER: following} if following else {}
    return found if pages.text is None else {**found, SEARCHED_HEADER: str(pages.looked_at)}


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
    """The attempt's number; `None` for all; 0, which has no items, before the first. Raises `InvalidRequestError`."""
    if wanted == "all":
        return None
    if wanted is None:
        return job.newest if job else 0
    if job is None:
        raise InvalidRequestError("attempt", "there is none yet")
    job.require_attempt(int(wanted))
    return int(wanted)
