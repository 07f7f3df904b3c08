"""`/dead-letters`: jobs that are out of retries, and what is done about them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from gateway.services.dead_letters import DeadLetters
from gateway.storage.job_queries import JobQueries
from gateway.web.access import Called
from gateway.web.dependencies import Parts, RequestId
from gateway.web.schemas.crawl import CrawlReceipt
from gateway.web.schemas.dead_letter import DeadLetter, DeadLetterPage, DeadLettersQuery
from gateway.web.schemas.problem import problems
from gateway.web.store_route import StoreRoute

router = APIRouter(prefix="/dead-letters", tags=["jobs"], route_class=StoreRoute)

LetterId = Annotated[
    str, Path(description="The job's id.", examples=["5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"], max_length=100)
]


@router.get("", summary="List jobs that are out of retries", responses=problems(503))
async def list_dead_letters(
    query: Annotated[DeadLettersQuery, Query()], parts: Parts, caller: Called
) -> DeadLetterPage:
    """Newest first. Pass `next` as `after` for the page that follows."""
    wanted = query.to_filter()._replace(user_id=caller.only(query.user_id))
    page = await parts.reads.run(parts[JobQueries].page, wanted, query.limit, query.after)
    letters = [DeadLetter.of(job) for job in page.jobs]
    return DeadLetterPage(dead_letters=letters, next=page.next, searched_to=page.searched_to)


@router.post(
    "/{letter_id}/requeue",
    summary="Run a dead letter again",
    response_model=CrawlReceipt,
    response_model_exclude_none=True,
    responses=problems(404, 409, 429, 503),
)
def requeue(letter_id: LetterId, parts: Parts, request_id: RequestId) -> CrawlReceipt:
    """As a new job, linked to the old by `retry_of`; the old one stays as it ended, and leaves this list."""
    parts.truth.require()
    job = parts[DeadLetters].requeue(letter_id, request_id)
    return CrawlReceipt.of(job.id, cached=False, retry_of=job.retry_of)


@router.delete("/{letter_id}", summary="Let a dead letter go", status_code=204, responses=problems(404, 503))
def dismiss(letter_id: LetterId, parts: Parts) -> None:
    """It leaves this list. The job itself, its items and its log stay until `DELETE /jobs/{id}` or retention."""
    parts[DeadLetters].dismiss(letter_id)
