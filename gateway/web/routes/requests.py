"""`GET /jobs/{job_id}/requests`: the requests of a crawl, and how each ended."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from attrs import define, field
from fastapi import Query, Response
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from gateway.access.keys import Scope
from gateway.clock import to_iso
from gateway.contract.reasons import Reason
from gateway.errors import InvalidRequestError
from gateway.items.formats import ItemFormat, JsonLinesFormat
from gateway.jobs.job import Job
from gateway.requests.store import (
    COLUMNS,
    Cursor,
    Facts,
    Question,
    RequestFilter,
    RequestPlace,
    RequestsFound,
    RequestStore,
    Sort,
    find_requests,
)
from gateway.schedules.store import JobOrSchedule
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts, Router
from gateway.web.downloads import csv_encoder
from gateway.web.errors import Responses, problems
from gateway.web.lasting import Download
from gateway.web.routes.items import (
    FILE_CONTENT,
    NEXT_HEADER,
    REMOVED_HEADER,
    SEARCHED_HEADER,
    attachment,
    attempt_of,
)
from gateway.web.schemas.types import QueryBoolean, RowsQuery, Text, Timestamp

router = Router(tags=["jobs"])

#: Requests of a page if nobody says how many, and of each step of a download.
PAGE = 100
STEP = 1000
#: Requests of each step of a sorted download. They are more, because each step reads the whole record.
SORTED_STEP = 10_000
#: The stat of a crawl that says how many requests had no place in its record.
_LEFT_OUT_STAT = "discoverybot/requests_left_out"
_LEFT_OUT_HEADER = "X-Left-Out"
_CURSOR = re.compile(r"(?:(-1|[0-9]{1,15})\.)?([0-9]{1,6})-([0-9]{1,15})")


RequestSort = TypeAliasType(
    "RequestSort", Annotated[Sort, Field(description="In order of time, or the slowest or the largest first.")]
)


class RequestsFileQuery(RowsQuery):
    """All requests of a run, as a file."""

    format: Literal["jsonl", "csv"] = Field(default="jsonl", description="As what.")
    failed: QueryBoolean | None = Field(
        default=None,
        description="Only those that failed (no answer, 429 or 5xx, after all retries), or not.",
    )
    slow_ms: Annotated[int, Field(ge=0, le=10**9)] | None = Field(
        default=None, description="Only those that took so many milliseconds or more."
    )
    redirected: QueryBoolean | None = Field(default=None, description="Only those that were sent elsewhere, or not.")
    cached: QueryBoolean | None = Field(default=None, description="Only those that the HTTP cache answered, or not.")
    status: Annotated[str, Field(pattern="^[1-9]([0-9]{2}|xx)$")] | None = Field(
        default=None, description="Only answers with this status, such as `404`, or of this class, such as `4xx`."
    )
    code: Reason | None = Field(default=None, description="Only those that failed or were not sent for this.")
    q: Annotated[Text, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Only those with this text in their URL, or in the one they were redirected to."
    )
    sort: RequestSort = Field(default="at", description="In order of time, or the slowest or the largest first.")
    attempt: Annotated[str, Field(pattern="^(all|[1-9][0-9]{0,5})$")] | None = Field(
        default=None, description="`all`, or the number of an attempt; by default the attempt that counts."
    )

    def filter(self) -> RequestFilter:
        return RequestFilter(
            failed=self.failed, redirected=self.redirected, cached=self.cached, slow_ms=self.slow_ms,
            status=_statuses(self.status) if self.status else None, code=self.code, q=self.q,
        )  # fmt: skip


class RequestsQuery(RequestsFileQuery):
    format: Literal["json", "jsonl", "csv"] = "json"  # type: ignore[assignment]  # more of them
    limit: Annotated[int, Field(ge=1, le=STEP)] | None = Field(
        default=None, description=f"The size of a page, by default {PAGE}."
    )
    after: Annotated[str, Field(max_length=48, pattern=f"^{_CURSOR.pattern}$")] | None = Field(
        default=None, description="The `next` of the previous page."
    )


class RequestView(BaseModel):
    """A request of a crawl, and how it ended."""

    url: str = Field(description="The URL as requested, without a login, at most 2,000 characters.")
    status: int | None = Field(description="Null if there was no answer.")
    ms: int | None = Field(description="Milliseconds of the last try; null if nothing was sent.")
    bytes: int | None = Field(description="Size of the answer, decompressed.")
    cached: bool = Field(description="Whether the HTTP cache answered.")
    failed: bool = Field(description="Whether it counts as an error: no answer, 429 or 5xx, after all retries.")
    reason: str | None = Field(description="Why it failed, or was not sent.")
    code: str | None = Field(description="The reason as a code, one of the codes of a job's `reason`.")
    redirected_to: str | None = Field(description="The URL that answered, if it is another one.")
    retries: int = Field(description="How often it was tried again.")
    parent: str | None = Field(description="The page that led to it; null for start URLs and robots.txt.")
    attempt: int = Field(description="The attempt that asked.")
    at: Timestamp | None = Field(description="When it ended.")

    @classmethod
    def of(cls, facts: Facts) -> RequestView:
        return cls(**{**facts, "at": _moment(facts["at"])})


class RequestPage(BaseModel):
    """A page of a crawl's requests."""

    requests: list[RequestView]
    next: str | None = Field(description="The value of `after` for the next page; null on the last page.")
    left_out: int = Field(description="How many requests the record has no place for; known once the attempt ended.")
    removed_at: Timestamp | None = Field(description="When it was removed because its retention time was over.")


_EXAMPLE = {
    "requests": [
        {
            "url": "https://example.com/old",
            "status": 200,
            "ms": 183,
            "bytes": 48213,
            "cached": False,
            "failed": False,
            "reason": None,
            "code": None,
            "redirected_to": "https://example.com/new",
            "retries": 1,
            "parent": "https://example.com/",
            "attempt": 1,
            "at": "2027-06-01T09:00:01.250Z",
        }
    ],
    "next": None,
    "left_out": 0,
    "removed_at": None,
}
_SEARCHED = {
    SEARCHED_HEADER: {"description": "With `q`: how many more requests were looked at for this page.",
                      "schema": {"type": "integer"}},
}  # fmt: skip
_SENT = {
    _LEFT_OUT_HEADER: {"description": "How many requests the record has no place for.",
                       "schema": {"type": "integer"}},
    REMOVED_HEADER: {"description": "When the record was removed because its retention time was over.",
                     "schema": {"type": "string", "format": "date-time"}},
}  # fmt: skip
_RESPONSES: Responses = {
    200: {
        "model": RequestPage,
        "description": "The requests.",
        "content": {"application/json": {"example": _EXAMPLE}},
        "headers": _SEARCHED,
    },
    **problems(404, 503),
}
_FILE_RESPONSES: Responses = {
    200: {
        "description": "The requests, as the file that `format` names.",
        "content": FILE_CONTENT,
        "headers": _SENT,
    },
    **problems(404, 503),
}


@router.get(
    "/jobs/{job_id}/requests", summary="List a crawl's requests", response_class=Response, responses=_RESPONSES
)
@needs(Scope.READ)
async def list_job_requests(job_id: JobId, query: Annotated[RequestsQuery, Query()], parts: Parts) -> Response:
    """One entry per request, which includes its redirects and retries. While the crawl runs, an entry appears once
    the request's callback has ended. For a schedule, the entries are those of the present run or the latest one.

    A page in the order of time ends after two seconds: with a filter it may then have fewer requests than `limit`, or
    none, and its `next` goes on.
    """
    if query.format == "json":
        page, looked_at = await parts.threads.run(read_requests, parts, job_id, query)
        headers = {SEARCHED_HEADER: str(looked_at)} if query.q else {}
        return Response(page.model_dump_json(), headers=headers, media_type="application/json")
    return await _download(parts, job_id, query)


@router.get(
    "/jobs/{job_id}/requests/download",
    summary="Download a crawl's requests",
    response_class=Response,
    responses=_FILE_RESPONSES,
)
@needs(Scope.READ)
async def download_job_requests(
    job_id: JobId, query: Annotated[RequestsFileQuery, Query()], parts: Parts
) -> Response:
    """All that there are at this moment, one entry per request, as it ended."""
    return await _download(parts, job_id, RequestsQuery.model_construct(**dict(query)))


def read_requests(parts: GatewayParts, job_id: str, query: RequestsQuery) -> tuple[RequestPage, int]:
    """The page, and how many requests were looked at for it. Raises `JobNotFoundError`, `InvalidRequestError`,
    `UnavailableError`.
    """
    job = parts[JobOrSchedule].whole(job_id)
    attempt = attempt_of(job, query.attempt)
    found = _find(parts, job, attempt, query, query.limit or PAGE)
    page = RequestPage(
        requests=[RequestView.of(one.facts) for one in found.requests],
        next=found.next and _text(found.next),
        left_out=left_out_of(job, attempt),
        removed_at=job.items_removed_at if job else None,
    )
    return page, found.looked_at


def _find(
    parts: GatewayParts, job: Job | None, attempt: int | None, query: RequestsQuery, limit: int
) -> RequestsFound:
    after = _cursor(query.after, query.sort) if query.after else None
    if job is None:
        return RequestsFound([], None, 0)
    question = Question(query.filter(), query.sort, after, limit)
    with mongo_errors():
        return find_requests(parts[RequestStore], job.id, attempt, question)


# --- JSON lines and CSV


@define(eq=False, repr=False, slots=False)
class _Export:
    """Reads and encodes all pages, one after the other, from the one that the query asks for on."""

    _parts: GatewayParts
    _job: Job | None
    _attempt: int | None
    _query: RequestsQuery
    _encoder: ItemFormat
    #: The cursor of the next page; `None` after the last page.
    following: Cursor | None = field(init=False, default=None)

    def read(self) -> bytes:
        limit = self._query.limit or (STEP if self._query.sort == "at" else SORTED_STEP)
        found, self.following, _ = _find(self._parts, self._job, self._attempt, self._query, limit)
        if self.following:
            self._query = self._query.model_copy(update={"after": _text(self.following)})
        return self._encoder.encode([_row(one.facts) for one in found])

    async def stream(self, first: bytes) -> AsyncIterator[bytes]:
        yield first
        while self.following:
            yield await self._parts.threads.run(self.read)


async def _download(parts: GatewayParts, job_id: str, query: RequestsQuery) -> Response:
    if query.limit is None:
        parts.answers.take()
    job = await parts.threads.look(parts[JobOrSchedule].whole, job_id)
    attempt = attempt_of(job, query.attempt)
    encoder = _encoder(query)
    export = _Export(parts, job, attempt, query, encoder)
    # before the answer begins, so that an absent store still leads to an error
    first = await parts.threads.run(export.read)
    headers = _headers(job_id, job, attempt, encoder)
    if query.limit is None:
        return Download(export.stream(first), parts.answers, headers=headers, media_type=encoder.media_type)
    if export.following:
        headers[NEXT_HEADER] = _text(export.following)
    return Response(first, headers=headers, media_type=encoder.media_type)


def _encoder(query: RequestsQuery) -> ItemFormat:
    if query.format == "csv":
        return csv_encoder(query, COLUMNS)
    return JsonLinesFormat()


def _headers(identity: str, job: Job | None, attempt: int | None, encoder: ItemFormat) -> dict[str, str]:
    headers = {"Content-Disposition": attachment(job, identity, encoder.extension, "requests")}
    if left_out := left_out_of(job, attempt):
        headers[_LEFT_OUT_HEADER] = str(left_out)
    if job is not None and job.items_removed_at is not None:
        headers[REMOVED_HEADER] = to_iso(job.items_removed_at)
    return headers


def _row(facts: Facts) -> dict[str, Any]:
    moment = _moment(facts["at"])
    return {**facts, "at": moment and to_iso(moment)}


# --- what pages and downloads share


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def _statuses(wanted: str) -> tuple[int, int]:
    if wanted.endswith("xx"):
        return int(wanted[0]) * 100, int(wanted[0]) * 100 + 99
    return int(wanted), int(wanted)


def left_out_of(job: Job | None, attempt: int | None) -> int:
    """How many requests the record of this attempt, or of all, has no place for."""
    attempts = job.attempts.items() if job else ()
    ends = [one.exit for number, one in attempts if attempt in (None, int(number)) and one.exit]
    found = (end.report.stats.get(_LEFT_OUT_STAT) for end in ends if end.report)
    return sum(number for number in found if isinstance(number, int))


def _text(cursor: Cursor) -> str:
    place = f"{cursor.place.attempt}-{cursor.place.end}"
    return place if cursor.value is None else f"{cursor.value}.{place}"


def _cursor(text: str, sort: Sort) -> Cursor:
    """The cursor in `after`. Raises `InvalidRequestError` if it is of another order."""
    match = _CURSOR.fullmatch(text)
    if match is None or (match[1] is None) != (sort == "at"):
        raise InvalidRequestError("after", "is the cursor of another order; use the `next` of the previous page")
    return Cursor(RequestPlace(int(match[2]), int(match[3])), None if match[1] is None else int(match[1]))
