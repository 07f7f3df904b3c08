"""Sites and targets: where to search, how politely, and for what."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gateway.domain.fetch_options import FetchOptions
from gateway.domain.search_url import KEYWORDS, LOCATION, SearchUrl

#: The spider that knows job boards; only it is given the site's selectors and pagination.
JOBS_SPIDER = "jobs"
#: Names of the selectors that it takes.
SELECTORS = (
    *("result", "title", "company", "location", "salary", "posted", "url", "description"),
    *("next", "load_more"),
)
#: Who asks for the runs of sites and targets.
OPERATOR = "operator"


class PaginationType(StrEnum):
    NEXT_LINK = "next_link"
    PAGE_PARAM = "page_param"
    INFINITE_SCROLL = "infinite_scroll"
    NONE = "none"


class Site(BaseModel):
    """One document of `sites`; `_id` in MongoDB is the name."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    name: str = Field(alias="_id")
    #: Running number, beside the name: `website_id` in messages, `site_schedule_id` in run records.
    number: int
    enabled: bool = True
    project: str = "default"
    spider: str = JOBS_SPIDER
    #: Template with `{keywords}`, `{location}` and `{page}`.
    search_url: str
    requires_playwright: bool = False
    pagination_type: PaginationType = PaginationType.NONE
    #: CSS selectors by field name, as the `jobs` spider documents them.
    selectors: dict[str, str] = Field(default_factory=dict)
    #: How often it is crawled by itself, and its targets that say nothing else.
    interval_minutes: int = 60
    min_pause_seconds: float = 2.0
    max_pause_seconds: float = 8.0
    max_retries: int = 3
    #: Requests of all crawls of this site together (`30/m`); `None`: no limit.
    rate_limit: str | None = None
    #: Whether runs of this site may overlap.
    allow_overlap: bool = False
    #: Further parameters for the spider; `keywords` and `location` fill the template of the site's own runs.
    payload: dict[str, Any] = Field(default_factory=dict)
    fetch: FetchOptions = FetchOptions()
    #: Of its own schedule; there for as long as the site is.
    schedule_id: str
    rev: int = 1
    created_at: datetime
    updated_at: datetime

    @property
    def words(self) -> dict[str, str] | None:
        """`keywords` and `location` of its own runs, from `payload`; `None` where its template asks for others."""
        wanted = SearchUrl(self.search_url).placeholders & {KEYWORDS, LOCATION}
        if not wanted <= self.payload.keys():
            return None
        return {name: self.payload.get(name, "") for name in (KEYWORDS, LOCATION)}

    def to_document(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True, exclude_none=True)


class Target(BaseModel):
    """One document of `targets`: a site × keywords × location, with its own frequency."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    id: str = Field(alias="_id")
    #: Running number: `target_id` in messages.
    number: int
    site: str
    keywords: str = ""
    location: str = ""
    #: Cron or a number of minutes, as text; `None`: the site's `interval_minutes`.
    frequency: str | None = None
    timezone: str = "UTC"
    enabled: bool = True
    results_wanted: int | None = None
    is_remote: bool | None = None
    schedule_id: str
    #: When a run of it was last handed to a worker.
    last_scheduled: datetime | None = None
    rev: int = 1
    created_at: datetime
    updated_at: datetime

    @property
    def words(self) -> dict[str, str]:
        return {KEYWORDS: self.keywords, LOCATION: self.location}

    def interval(self, site: Site) -> str:
        """As a schedule has it."""
        text = self.frequency or str(site.interval_minutes)
        return every_minutes(int(text)) if text.isascii() and text.isdigit() else text

    def to_document(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True, exclude_none=True)


def every_minutes(minutes: int) -> str:
    """The interval of a schedule that runs so often."""
    return f"every {minutes}m"
