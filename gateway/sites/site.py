"""The records of sites (where to search, how often, and how politely) and of targets (what to search for)."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, Field

from gateway.contract.crawl import DatasetOrder, Expect, FetchOptions, PaginationType
from gateway.errors import InvalidRequestError

FIELD = "search_url"
KEYWORDS, LOCATION, PAGE = PLACEHOLDERS = ("keywords", "location", "page")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
#: Scheme and host. They have no placeholders, so that search words cannot choose the host.
_ORIGIN = re.compile(r"[^/?#]*//[^/?#]*")


class SearchUrl:
    """The template of a search URL, checked. Raises `InvalidRequestError` if the template is not valid."""

    def __init__(self, template: str) -> None:
        names = _PLACEHOLDER.findall(template)
        unknown = next((name for name in names if name not in PLACEHOLDERS), None)
        if unknown is not None:
            known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise InvalidRequestError(FIELD, f"has an unknown placeholder {{{unknown}}}; known are {known}")
        if set(_PLACEHOLDER.sub("", template)) & set("{}"):
            raise InvalidRequestError(FIELD, "has an unmatched brace; write a literal brace as %7B or %7D")
        origin = _ORIGIN.match(template)
        if origin is None or "{" in origin[0]:
            raise InvalidRequestError(FIELD, "must begin with http:// or https:// and a host without placeholders")
        self.template = template
        self.placeholders = frozenset(names)
        #: Placeholders in the path. They need a value; in the query an empty value is allowed.
        self.in_path = frozenset(_PLACEHOLDER.findall(re.split("[?#]", template, maxsplit=1)[0]))

    def render(self, keywords: str, location: str, page: int | None = None) -> str:
        """The URL for these words. Without `page`, the placeholder `{page}` stays.

        A space becomes %20 and a slash %2F, which mean the same in a path and in a query.
        """
        values = {KEYWORDS: quote(keywords, safe=""), LOCATION: quote(location, safe="")}
        values[PAGE] = f"{{{PAGE}}}" if page is None else str(page)
        return _PLACEHOLDER.sub(lambda match: values[match[1]], self.template)

    def refusal(self, words: dict[str, str]) -> tuple[str, str] | None:
        """Which of `keywords` and `location` does not fit the template, and why; `None` if both fit."""
        for name, value in words.items():
            if value and name not in self.placeholders:
                return name, f"the site's search_url has no {{{name}}}"
            if not value and name in self.in_path:
                return name, f"is required: {{{name}}} is in the path of the site's search_url"
        return None


#: The spider for job boards. Only this spider gets the site's selectors and pagination.
JOBS_SPIDER = "jobs"
#: The names of the selectors that it accepts.
SELECTORS = (
    *("result", "title", "company", "location", "salary", "posted", "url", "description"),
    *("next", "load_more"),
)
#: The user of the runs of sites and targets.
OPERATOR = "operator"


class Site(BaseModel, extra="forbid", populate_by_name=True):
    """One document of `sites`; `_id` in MongoDB is the name."""

    name: str = Field(alias="_id")
    #: A number in addition to the name: `website_id` in messages, `site_schedule_id` in run records.
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
    #: How often the site is crawled, and each target without a `frequency` of its own.
    interval_minutes: int = 60
    min_pause_seconds: float = 2.0
    max_pause_seconds: float = 8.0
    max_retries: int = 3
    #: The rate limit for all crawls of this site together (`30/m`); `None` for no limit.
    rate_limit: str | None = None
    #: Whether runs of this site may overlap.
    allow_overlap: bool = False
    #: Further parameters for the spider. `keywords` and `location` fill the template for the site's own runs.
    payload: dict[str, Any] = Field(default_factory=dict)
    fetch: FetchOptions = FetchOptions()
    #: What each run must find; otherwise it ends as partial.
    expect: Expect | None = None
    #: The dataset to which its runs, and its targets' runs, add their items.
    dataset: DatasetOrder | None = None
    #: The id of its own schedule, which exists as long as the site.
    schedule_id: str
    rev: int = 1
    created_at: datetime
    updated_at: datetime

    @property
    def words(self) -> dict[str, str] | None:
        """`keywords` and `location` of its own runs, from `payload`; `None` if the search URL needs one that
        `payload` lacks.
        """
        wanted = SearchUrl(self.search_url).placeholders & {KEYWORDS, LOCATION}
        if not wanted <= self.payload.keys():
            return None
        return {name: self.payload.get(name, "") for name in (KEYWORDS, LOCATION)}

    def to_document(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True, exclude_none=True)


class Target(BaseModel, extra="forbid", populate_by_name=True):
    """One document of `targets`: keywords and a location to search for on a site, with its own frequency."""

    id: str = Field(alias="_id")
    #: Its number, which is `target_id` in messages.
    number: int
    site: str
    keywords: str = ""
    location: str = ""
    #: A cron expression or a number of minutes, as text; `None` for the site's `interval_minutes`.
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
        """The interval in the syntax of schedules."""
        text = self.frequency or str(site.interval_minutes)
        return every_minutes(int(text)) if text.isascii() and text.isdigit() else text

    def to_document(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True, exclude_none=True)


def every_minutes(minutes: int) -> str:
    """The interval in the syntax of schedules."""
    return f"every {minutes}m"
