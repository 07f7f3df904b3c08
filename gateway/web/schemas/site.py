"""Sites: what is said of one, what may be changed, and what is told."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from gateway.domain.fetch_options import FetchOptions, RateText
from gateway.domain.job import DEFAULT_PROJECT
from gateway.domain.param_formats import MAX_LENGTH
from gateway.domain.schedule import Schedule, ScheduleState
from gateway.domain.search_url import KEYWORDS, LOCATION, SearchUrl
from gateway.domain.site import JOBS_SPIDER, PaginationType, Site
from gateway.services.site_crawl import is_job_board
from gateway.web.schemas.types import Name, Params, QueryBoolean, Text, Timestamp, UrlText

#: A year.
_MOST_MINUTES = 366 * 24 * 60
_BOARD: JsonDict = {
    "name": "example-jobs",
    "search_url": "https://jobs.example.com/search?q={keywords}&l={location}&page={page}",
    "pagination_type": "page_param",
    "selectors": {"result": "li.job", "title": "h2::text", "company": ".company::text", "url": "a::attr(href)"},
    "interval_minutes": 60,
    "min_pause_seconds": 2,
    "max_pause_seconds": 8,
    "rate_limit": "30/m",
    "payload": {"max_result_pages": 20},
}
_OTHER: JsonDict = {
    "name": "shop",
    "spider": "seo",
    "search_url": "https://shop.example.com/",
    "interval_minutes": 1440,
}

#: In a Redis key, a URL and a lease's name.
SiteName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="Letters, digits and `. _ -`; for good.")
]
Enabled = Annotated[bool, Field(description="Disabled, neither it nor its targets are run.")]
Spider = Annotated[Name, Field(description="One of `GET /spiders`.")]
Project = Annotated[Name, Field(description="The project of a deployed egg; `default` is our own.")]
Template = Annotated[
    UrlText,
    Field(description="Where a search begins: a URL with `{keywords}`, `{location}` and `{page}` where they belong."),
]
RequiresPlaywright = Annotated[bool, Field(description="Its pages are rendered in a browser.")]
# strict models take no text for it
Pagination = Annotated[
    PaginationType, Field(strict=False, description="How `jobs` gets from one page of results to the next.")
]
Selector = Annotated[Text, Field(min_length=1, max_length=MAX_LENGTH)]
Selectors = Annotated[
    dict[str, Selector],
    Field(max_length=50, description="CSS selectors by name, for `jobs` where a page carries no JSON-LD."),
]
Minutes = Annotated[
    int, Field(ge=1, le=_MOST_MINUTES, description="How often it is run by itself, and targets without a frequency.")
]
Seconds = Annotated[float, Field(ge=0, le=3600)]
MinPause = Annotated[Seconds, Field(description="Shortest pause between two requests of a run.")]
MaxPause = Annotated[Seconds, Field(description="Longest; each is drawn from between the two.")]
Retries = Annotated[int, Field(ge=0, le=20, description="How often a run that failed is tried again.")]
Rate = Annotated[
    RateText | None, Field(description="Requests of all its runs together, such as `30/m`; null: no limit.")
]
Overlapping = Annotated[bool, Field(description="Whether runs of it may overlap; if not, one waits for the other.")]
Payload = Annotated[
    Params,
    Field(description="Further parameters for the spider; `keywords` and `location` are those of its own runs."),
]
Fetch = Annotated[FetchOptions, Field(description="Headers, cookies and the like; the pauses have their own fields.")]
#: Absent from a change; told from null, which some fields may be.
_UNCHANGED: Any = Field(default_factory=type(None))


class Named(BaseModel):
    """A body whose absent fields mean something."""

    model_config = ConfigDict(extra="forbid", strict=True)

    def given(self) -> dict[str, Any]:
        """What the request names."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class SiteRequest(Named):
    """Only `name` and `search_url` are required."""

    model_config = ConfigDict(json_schema_extra={"examples": [_BOARD, _OTHER]})

    name: SiteName
    enabled: Enabled = True
    project: Project = DEFAULT_PROJECT
    spider: Spider = JOBS_SPIDER
    search_url: Template
    requires_playwright: RequiresPlaywright = False
    pagination_type: Pagination = PaginationType.NONE
    selectors: Selectors = Field(default_factory=dict)
    interval_minutes: Minutes = 60
    min_pause_seconds: MinPause = 2.0
    max_pause_seconds: MaxPause = 8.0
    max_retries: Retries = 3
    rate_limit: Rate = None
    allow_overlap: Overlapping = False
    payload: Payload = Field(default_factory=dict)
    fetch: Fetch = FetchOptions()


class SiteChanges(Named):
    """What is absent stays as it is; a selector, a payload or `fetch` is replaced as a whole."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"enabled": False}, {"rate_limit": "10/m"}]})

    enabled: Enabled = _UNCHANGED
    project: Project = _UNCHANGED
    spider: Spider = _UNCHANGED
    search_url: Template = _UNCHANGED
    requires_playwright: RequiresPlaywright = _UNCHANGED
    pagination_type: Pagination = _UNCHANGED
    selectors: Selectors = _UNCHANGED
    interval_minutes: Minutes = _UNCHANGED
    min_pause_seconds: MinPause = _UNCHANGED
    max_pause_seconds: MaxPause = _UNCHANGED
    max_retries: Retries = _UNCHANGED
    rate_limit: Rate = _UNCHANGED
    allow_overlap: Overlapping = _UNCHANGED
    payload: Payload = _UNCHANGED
    fetch: Fetch = _UNCHANGED


class SiteView(BaseModel):
    """A site, and where its own schedule stands."""

    name: str
    number: int = Field(description="`website_id` in messages, `site_schedule_id` in run records.")
    enabled: bool
    project: str
    spider: str
    search_url: str
    requires_playwright: bool
    pagination_type: PaginationType
    selectors: dict[str, str]
    interval_minutes: int
    min_pause_seconds: float
    max_pause_seconds: float
    max_retries: int
    rate_limit: str | None
    allow_overlap: bool
    payload: dict[str, Any]
    fetch: FetchOptions = Field(description="Without the values of headers and cookies, and the proxy's password.")
    schedule_id: str = Field(description="Of its own schedule, in `/schedules`.")
    schedule_state: ScheduleState | None = Field(description="Paused: it is not run by itself.")
    last_run_at: Timestamp | None = Field(description="When it was last run by itself.")
    next_run_at: Timestamp | None = Field(description="Null where it is disabled, or its template needs words.")
    created_at: Timestamp
    updated_at: Timestamp

    @classmethod
    def of(cls, site: Site, schedule: Schedule | None) -> SiteView:
        return cls(
            **site.model_dump(exclude={"rev", "fetch"}),
            fetch=site.fetch.masked(),
            schedule_state=schedule.state if schedule else None,
            last_run_at=schedule.last_run_at if schedule else None,
            next_run_at=schedule.next_run if schedule else None,
        )


class SitePage(BaseModel):
    sites: list[SiteView] = Field(description="By name.")
    next: str | None = Field(description="`after` of the next page; null on the last.")


class SitesQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    enabled: QueryBoolean | None = Field(default=None, description="Only those that are, or are not.")
    limit: int = Field(default=50, ge=1, le=200)
    after: Annotated[Text, Field(max_length=100)] | None = Field(
        default=None, description="`next` of the page before."
    )


class SiteDeletion(BaseModel):
    model_config = ConfigDict(extra="forbid")

    force: QueryBoolean = Field(default=False, description="With its targets.")


class SiteAbilities(BaseModel):
    """What a run of a site can be asked for."""

    site_name: str
    enabled: bool = Field(description="A disabled one takes no runs.")
    spider: str
    search_url: str
    keywords: bool = Field(description="Whether it can be searched for a `search_term`.")
    location: bool = Field(description="Whether it can be searched by `location`.")
    is_remote: bool = Field(description="Whether results can be kept by `is_remote`.")
    results_wanted: bool = Field(description="Whether it ends with so many.")
    pagination_type: PaginationType
    requires_playwright: bool = Field(description="It runs only where a node has a browser.")

    @classmethod
    def of(cls, site: Site) -> SiteAbilities:
        placeholders = SearchUrl(site.search_url).placeholders
        return cls(
            site_name=site.name,
            **site.model_dump(include={"enabled", "spider", "search_url", "pagination_type", "requires_playwright"}),
            keywords=KEYWORDS in placeholders,
            location=LOCATION in placeholders,
            is_remote=is_job_board(site),
            results_wanted=True,
        )


class SiteAbilitiesList(BaseModel):
    sites: list[SiteAbilities] = Field(description="By name.")
