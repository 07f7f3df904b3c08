"""The results of a job: the tabs with its items, how full their fields are, and its files."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from fastapi import Query, Request, Response

from gateway.access.keys import Scope
from gateway.console.formats import count
from gateway.console.job import tab
from gateway.console.pages import Pages, page
from gateway.contract.written_files import MAX_NAME
from gateway.jobs.job import FINAL_STATUSES, Job, JobStatus
from gateway.schedules.store import JobOrSchedule
from gateway.web.authorisation import Called, needs
from gateway.web.dependencies import JobId, Parts
from gateway.web.routes.fields import FieldsQuery, get_job_fields
from gateway.web.routes.files import FilesQuery, FileView, list_job_files

router = Pages()

#: Files on one page.
FILES = 100
#: Media types that all browsers show as pictures, and the bytes of the largest picture that a page shows.
PICTURES = frozenset(
    f"image/{kind}"
    for kind in ("png", "jpeg", "gif", "webp", "avif", "svg+xml", "bmp", "x-icon", "vnd.microsoft.icon")
)
LARGEST_PICTURE = 10 << 20


class Nothing(NamedTuple):
    """The text of an empty tab: why it is empty, an explanation, and where to go next."""

    words: str
    more: str | None = None
    todo: str | None = None
    #: The tab of the job to go to next, and the minimum level of the log there.
    tab: str | None = None
    level: str | None = None


@router.page("/console/jobs/{job_id}/items")
@needs(Scope.READ)
def items_tab(request: Request, job_id: JobId, parts: Parts) -> Response:
    found = parts[JobOrSchedule].job(job_id)
    # until the job is settled, further items can still come
    is_live = found is None or not found.settled
    return tab(request, job_id, parts, "items", nothing=why_nothing(found, "items"), is_live=is_live)


@router.page("/console/jobs/{job_id}/fields")
@needs(Scope.READ)
async def fields_part(request: Request, job_id: JobId, parts: Parts, caller: Called) -> Response:
    """A part of the items' tab. It is loaded separately, because the first count takes a while."""
    found = await get_job_fields(job_id, FieldsQuery(compare="runs"), parts, caller)
    job = await parts.threads.run(parts[JobOrSchedule].job, job_id)
    return page(request, "job/fields.html", found=found, job=job)


@router.page("/console/jobs/{job_id}/files")
@needs(Scope.READ)
def files_tab(
    request: Request,
    job_id: JobId,
    parts: Parts,
    after: Annotated[str | None, Query(min_length=1, max_length=MAX_NAME)] = None,
) -> Response:
    found = parts[JobOrSchedule].whole(job_id)
    listed = list_job_files(job_id, FilesQuery(limit=FILES, after=after), parts)
    return tab(
        request,
        job_id,
        parts,
        "files",
        listed=listed,
        after=after,
        pictures=[file for file in listed.files if is_picture(file)],
        others=[file for file in listed.files if not is_picture(file)],
        refused=refused(found),
        nothing=why_nothing(found, "files"),
    )


def is_picture(file: FileView) -> bool:
    return file.type in PICTURES and 0 < file.size <= LARGEST_PICTURE


def refused(job: Job | None) -> list[dict[str, str]]:
    """Attempt, name and reason of files that were not stored: the first ones of each attempt."""
    ends = [attempt.exit for attempt in job.attempts.values() if attempt.exit] if job else []
    return [{"attempt": str(end.attempt), **one} for end in ends if end.files for one in end.files.refused]


def why_nothing(job: Job | None, what: Literal["items", "files"]) -> Nothing:
    """Why the tab is empty, and what to do."""
    if job is None or job.status not in FINAL_STATUSES:
        return _nothing_yet(job, what)
    found = job.progress.items_count if job.progress and what == "items" else 0
    if job.items_removed_at is not None:
        removed = f"The {what} were deleted by retention"
        words = f"{_found(found)}, since deleted by retention" if found else removed
        return Nothing(f"{words} (ITEM_RETENTION_DAYS).")
    if what == "files":
        return Nothing("No files", "Files that Scrapy's pipelines and feeds write appear here.")
    if found:
        return Nothing(f"{_found(found)}, none stored", job.message, "View log", "log")
    failed = job.status is JobStatus.ERROR or (job.progress and job.progress.errors_count)
    more = "The pages may have none, or the spider's selectors no longer match them."
    if failed:
        return Nothing("No items found", job.message, "View errors in the log", "log", "ERROR")
    return Nothing("No items found", job.message or more, "View log", "log")


def _found(items: int) -> str:
    return f"{count(items)} {'item' if items == 1 else 'items'} found"


def _nothing_yet(job: Job | None, what: str) -> Nothing:
    if job is None or job.status is not JobStatus.RUNNING:
        return Nothing(f"No {what} yet", "The crawl has not started." if job else None)
    if what == "files":
        return Nothing("No files yet", "Files appear once the crawl has ended.")
    return Nothing("No items yet", "Items appear here as they are scraped.", "View live log", "log")
