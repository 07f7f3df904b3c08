"""`POST /crawl`: what may be asked, and the receipt."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.config import JsonDict

from gateway.web.schemas.types import Name, Params, QueryBoolean, Tag, Timestamp, UrlText, UserId

MAX_START_URLS = 1000
_MOST = 100_000_000
_WEEK = 7 * 24 * 3600
_DEPLOYED: JsonDict = {
    "user_id": "abc123",
    "project": "shop",
    "version": "1.4",
    "spider": "offers",
    "start_urls": ["https://shop.example.com/offers"],
    "params": {"category": "shoes"},
    "max_items": 500,
}
_EXAMPLE: JsonDict = {
    "user_id": "abc123",
    "spider": "seo",
    "start_urls": ["https://example.com"],
    "depth": 2,
    "max_pages": 1000,
    "tags": ["nightly"],
}


class CrawlRequest(BaseModel):
    """A crawl to be run now. Only `user_id`, `spider` and `start_urls` are required."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [_EXAMPLE, _DEPLOYED]})

    user_id: UserId = Field(description="Who asks; letters, digits and `. _ @ + | ~ = -`.")
    spider: Name = Field(description="One of `GET /spiders`.")
    start_urls: list[UrlText] = Field(
        min_length=1, max_length=MAX_START_URLS, description="Absolute http(s) URLs of public hosts."
    )
    depth: int | None = Field(
        default=None, ge=0, le=1000, description="Links followed from a start URL; 0 is the start URLs alone."
    )
    ignore_cache: bool = Field(default=False, description="A fresh run, past both caches.")
    params: Params = Field(default_factory=dict, description="Checked against the spider's own schema.")
    priority: int = Field(default=0, ge=-100, le=100, description="Higher goes first.")
    tags: list[Tag] = Field(default_factory=list, max_length=20)
    max_pages: int | None = Field(default=None, ge=1, le=_MOST)
    max_items: int | None = Field(default=None, ge=1, le=_MOST, description="Items after which the crawl ends.")
    timeout: int | None = Field(
        default=None, ge=1, le=_WEEK, description="Seconds one attempt may take; `JOB_TIMEOUT` by default."
    )
    max_retries: int | None = Field(default=None, ge=0, le=20, description="`MAX_RETRIES` by default.")
    webhook_url: UrlText | None = None
    project: Name | None = Field(default=None, description="The project of a deployed egg; our own by default.")
    version: Name | None = Field(
        default=None, description="Of the project's egg; by default the latest, which every attempt then runs."
    )
    # Known to the contract, so that naming one is answered with a reason instead of "unknown field".
    schedule_at: None = Field(default=None, description="Not available yet.")
    interval: None = Field(default=None, description="Not available yet.")
    timezone: None = Field(default=None, description="Not available yet.")
    jitter: None = Field(default=None, description="Not available yet.")
    overlap: None = Field(default=None, description="Not available yet.")

    @field_validator("schedule_at", "interval", "timezone", "jitter", "overlap", mode="before")
    @classmethod
    def _not_yet(cls, value: Any) -> Any:
        if value is not None:
            raise ValueError("schedules are not there yet: this gateway runs crawls at once")
        return value


class CrawlQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ignore_cache: QueryBoolean = Field(default=False, description="The same as in the body.")


class CrawlReceipt(BaseModel):
    """The job that answers the request: a new one, or the one that does the same work already."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "job_id": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
                    "scheduled": False,
                    "cached": False,
                    "logs_url": "/jobs/5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a/logs",
                    "status_url": "/jobs/5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a/status",
                }
            ]
        }
    )

    job_id: str
    scheduled: Literal[False] = False
    cached: bool = Field(description="The job existed before this request.")
    cached_at: Annotated[Timestamp | None, Field(description="When it was asked for; with `cached` only.")] = None
    logs_url: str
    status_url: str
    retry_of: str | None = Field(default=None, description="The job that this one runs again; after a retry only.")

    @classmethod
    def of(cls, job_id: str, **more: Any) -> CrawlReceipt:
        return cls(job_id=job_id, logs_url=f"/jobs/{job_id}/logs", status_url=f"/jobs/{job_id}/status", **more)
