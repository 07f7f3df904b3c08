"""`GET /jobs/{job_id}/files`: what a crawl has written as files, and each of them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, NamedTuple
from urllib.parse import quote

from fastapi import Header, HTTPException, Path, Query, Response
from pydantic import BaseModel, Field
from starlette.convertors import Convertor, register_url_convertor

from gateway.access.keys import Scope
from gateway.contract.written_files import MAX_NAME, passive_type
from gateway.errors import WrittenFileNotFoundError
from gateway.files.store import FileRecord, FileStore
from gateway.schedules.store import JobOrSchedule
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts, Router
from gateway.web.errors import Responses, problems
from gateway.web.lasting import Download
from gateway.web.schemas.types import QueryModel, Timestamp

router = Router(tags=["jobs"])

#: Bytes that are read at a time, so that a slow client keeps no more than these in memory.
PIECE = 1 << 20
#: The policy for files that a spider has fetched: no page, ours or another, may run them.
POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"
_ATTEMPT = Field(ge=1, le=999_999)


class FilesQuery(QueryModel):
    attempt: Annotated[int, _ATTEMPT] | None = Field(
        default=None,
        description="Only files of this attempt. Default: of all attempts, and of each name the latest.",
    )
    limit: int = Field(default=100, ge=1, le=1000, description="The size of a page.")
    after: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None = Field(
        default=None, description="The `next` of the previous page."
    )


class FileQuery(QueryModel):
    attempt: Annotated[int, _ATTEMPT] | None = Field(
        default=None, description="The file as this attempt wrote it. Default: as the latest did that wrote it."
    )


class FileView(BaseModel):
    """A file that a crawl has written."""

    name: str = Field(description="The file's path below the folder that the spider works in.")
    size: int = Field(description="Bytes.")
    type: str = Field(description="The media type, by its name.")
    sha256: str
    attempt: int = Field(description="The attempt that wrote it.")
    modified_at: Timestamp = Field(description="When the spider wrote it last.")
    stored_at: Timestamp
    url: str = Field(description="Where it can be fetched.")

    @classmethod
    def of(cls, record: FileRecord) -> FileView:
        url = f"/jobs/{record.job_id}/files/{quote(record.name)}?attempt={record.attempt}"
        return cls(**record.model_dump(exclude={"id", "job_id"}), url=url)


class FilePage(BaseModel):
    """The files that a crawl has written."""

    files: list[FileView]
    next: str | None = Field(description="The value of `after` for the next page; null on the last page.")
    pending: bool = Field(
        description="Whether more may come: the job has not ended, or the file store was away at its end."
    )
    removed_at: Timestamp | None = Field(description="When they were removed because their retention time was over.")


_EXAMPLE = {
    "files": [
        {
            "name": "images/full/0a79c461a4062ac3.jpg",
            "size": 48213,
            "type": "image/jpeg",
            "sha256": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
            "attempt": 1,
            "modified_at": "2027-06-01T09:00:01.250Z",
            "stored_at": "2027-06-01T09:00:04.000Z",
            "url": "/jobs/5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a/files/images/full/0a79c461a4062ac3.jpg?attempt=1",
        }
    ],
    "next": None,
    "pending": False,
    "removed_at": None,
}
_LISTED: Responses = {
    200: {"description": "Files, by name.", "content": {"application/json": {"example": _EXAMPLE}}},
    **problems(404, 503),
}


@router.get("/jobs/{job_id}/files", summary="List the files that a crawl has written", responses=_LISTED)
@needs(Scope.READ)
def list_job_files(job_id: JobId, query: Annotated[FilesQuery, Query()], parts: Parts) -> FilePage:
    """What pipelines, feeds and the spider itself have written in the attempt's folder, once the attempt has ended.
    For a schedule, these are the files of the run under way, or of the one before.
    """
    job = parts[JobOrSchedule].whole(job_id)
    if job is None:
        return FilePage(files=[], next=None, pending=False, removed_at=None)
    with mongo_errors():
        found, following = parts[FileStore].page(job.id, query.attempt, query.after, query.limit)
    ends = [attempt.exit for attempt in job.attempts.values() if attempt.exit]
    return FilePage(
        files=[FileView.of(record) for record in found],
        next=following,
        pending=not job.is_final or any(end.files.pending for end in ends if end.files),
        removed_at=job.items_removed_at,
    )


# --- one file


class _Anything(Convertor[str]):
    """Matches any file name: names can have slashes, and even newlines, which Starlette's `path` does not match."""

    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any", _Anything())

_BYTES = {"schema": {"type": "string", "format": "binary"}}
_FETCHED: Responses = {
    200: {"description": "The file.", "content": {"application/octet-stream": _BYTES}},
    206: {"description": "The part that `Range` asks for.", "content": {"application/octet-stream": _BYTES}},
    304: {"description": "The file is the one that `If-None-Match` names."},
    **problems(404, 416, 503),
}


@router.get(
    "/jobs/{job_id}/files/{name:any}",
    summary="Fetch a file that a crawl has written",
    response_class=Response,
    responses=_FETCHED,
)
@needs(Scope.READ)
async def get_job_file(
    *,
    job_id: JobId,
    name: Annotated[str, Path(description="As the list has it.", examples=["images/full/0a79c461.jpg"])],
    query: Annotated[FileQuery, Query()],
    parts: Parts,
    wanted: Annotated[str | None, Header(alias="Range", description="One range of bytes.")] = None,
    if_range: Annotated[str | None, Header(description="`Range` counts only for this `ETag`.")] = None,
    if_none_match: Annotated[str | None, Header(description="The `ETag` that the client has.")] = None,
) -> Response:
    """The headers make a browser save the file under its own name, and neither show nor run it."""
    parts.answers.take()
    record = await parts.threads.run(_find, parts, job_id, name, query.attempt)
    headers = _headers(record)
    if if_none_match and headers["ETag"] in if_none_match:
        return Response(status_code=304, headers=headers)
    part = read_range(wanted if if_range in {None, headers["ETag"]} else None, record.size)
    if part is None:
        raise HTTPException(416, f"the file has {record.size} bytes", {"Content-Range": f"bytes */{record.size}"})
    headers["Content-Length"] = str(part.length)
    if part.is_partial:
        headers["Content-Range"] = f"bytes {part.start}-{part.start + part.length - 1}/{record.size}"
    # before the answer begins, so that an absent store still leads to an error
    first = await parts.threads.run(parts[FileStore].read, record, part.start, min(PIECE, part.length))
    return Download(
        _stream(parts, record, part, first),
        parts.answers,
        status_code=206 if part.is_partial else 200,
        headers=headers,
    )


def _find(parts: GatewayParts, job_id: str, name: str, attempt: int | None) -> FileRecord:
    job = parts[JobOrSchedule].job(job_id)
    with mongo_errors():
        record = parts[FileStore].find(job.id, attempt, name) if job else None
    if record is None:
        raise WrittenFileNotFoundError(job_id, name)
    return record


def _headers(record: FileRecord) -> dict[str, str]:
    own_name = record.name.rpartition("/")[2]
    return {
        # without an encoding for text, because it is not known
        "Content-Type": passive_type(record.type),
        "ETag": f'"{record.sha256}"',
        "Accept-Ranges": "bytes",
        # only `filename*`, percent-encoded: so no name can end the header, or lead out of a folder
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(own_name, safe='')}",
        "Content-Security-Policy": POLICY,
        "X-Attempt": str(record.attempt),
    }


async def _stream(parts: GatewayParts, record: FileRecord, part: ByteRange, first: bytes) -> AsyncIterator[bytes]:
    yield first
    position, end = part.start + len(first), part.start + part.length
    while position < end:
        data = await parts.threads.run(parts[FileStore].read, record, position, min(PIECE, end - position))
        position += len(data)
        yield data


class ByteRange(NamedTuple):
    start: int
    length: int
    is_partial: bool


_RANGE = re.compile(r"bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))")


def read_range(header: str | None, size: int) -> ByteRange | None:
    """The part of a file of `size` bytes that the header `Range` asks for: the whole file if the header does not name
    one valid range, as RFC 9110 allows, and `None` if the file ends before the range.
    """
    match = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if match is None:
        return ByteRange(0, size, is_partial=False)
    first, last, suffix = match.groups()
    if suffix is not None:
        start, end = max(0, size - int(suffix)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return ByteRange(0, size, is_partial=False)
    return ByteRange(start, end - start, is_partial=True) if start < end else None
