"""Dead letters: what is told of them, and which are asked for."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gateway.domain.job import Job
from gateway.domain.run import run_id_of
from gateway.storage.job_queries import JobFilter
from gateway.web.schemas.types import Cursor, Name, Text, Timestamp, UserId


class DeadLettersQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user_id: UserId | None = Field(default=None, description="Whose.")
    spider: Name | None = None
    q: Annotated[Text, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Text in the id, spider, tags, start URLs or message."
    )
    limit: int = Field(default=50, ge=1, le=200)
    after: Cursor | None = Field(default=None, description="`next` of the page before.")

    def to_filter(self) -> JobFilter:
        return JobFilter(user_id=self.user_id, spider=self.spider, q=self.q, dead=True)


class DeadLetter(BaseModel):
    """A job that is out of retries."""

    id: str = Field(description="The job's.")
    run_id: str | None = Field(description="Of a run of a site.")
    user_id: str
    project: str
    spider: str
    site: str | None
    start_urls: list[str] = Field(description="The first ten.")
    message: str | None = Field(description="Why it ended.")
    attempts: int = Field(description="How often it was started.")
    created_at: Timestamp
    finished_at: Timestamp | None
    retry_of: str | None
    job_url: str
    logs_url: str

    @classmethod
    def of(cls, job: Job) -> DeadLetter:
        return cls(
            id=job.id,
            run_id=run_id_of(job),
            user_id=job.user_id,
            project=job.spec.project,
            spider=job.spec.spider,
            site=job.spec.site,
            start_urls=list(job.spec.start_urls[:10]),
            message=job.message,
            attempts=len(job.attempts),
            created_at=job.created_at,
            finished_at=job.finished_at,
            retry_of=job.retry_of,
            job_url=f"/jobs/{job.id}",
            logs_url=f"/jobs/{job.id}/logs",
        )


class DeadLetterPage(BaseModel):
    dead_letters: list[DeadLetter]
    next: str | None = Field(description="`after` of the next page; null on the last.")
    searched_to: Timestamp | None = Field(
        description="Where a search ran out of time, as for `GET /jobs`.", examples=[None]
    )
