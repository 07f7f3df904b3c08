"""Sites and targets: where to search, how politely, and for what."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from gateway.contract.crawl import FetchOptions, PaginationType
from gateway.errors import InvalidRequestError

FIELD = "search_url"
KEYWORDS, LOCATION, PAGE = PLACEHOLDERS = ("keywords", "location", "page")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
#: Scheme and host: whoever fills in a word must not be able to choose where it leads.
_ORIGIN = re.compile(r"[^/?#]*//[^/?#]*")


class SearchUrl:
    """A template that was looked at. Raises `InvalidRequestError` for one that cannot be filled in."""

    def __init__(self, template: str) -> None:
        names = _PLACEHOLDER.findall(template)
        unknown = next((name for name in names if name not in PLACEHOLDERS), None)
        if unknown is not None:
            known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise InvalidRequestError(FIELD, f"has {{{unknown}}}; there is {known}")
        if set(_PLACEHOLDER.sub("", template)) & set("{}"):
            raise InvalidRequestError(FIELD, "has a brace without its other; one that is meant is %7B or %7D")
        origin = _ORIGIN.match(template)
        if origin is None or "{" in origin[0]:
            raise InvalidRequestError(FIELD, "must begin with http:// or https:// and a host without placeholders")
        self.template = template
        self.placeholders = frozenset(names)
        #: Those that leave a hole in the path where there is no value; in a query, none is a value too.
        self.in_path = frozenset(_PLACEHOLDER.findall(re.split("[?#]", template, maxsplit=1)[0]))

    def render(self, keywords: str, location: str, page: int | None = None) -> str:
        """The URL for these words; without `page` its placeholder is left open.

        A space becomes %20 and a slash %2F: understood alike in a path and in a query.
        """
        values = {KEYWORDS: quote(keywords, safe=""), LOCATION: quote(location, safe="")}
        values[PAGE] = f"{{{PAGE}}}" if page is None else str(page)
        return _PLACEHOLDER.sub(lambda match: values[match[1]], self.template)

    def refusal(self, words: dict[str, str]) -> tuple[str, str] | None:
        """Which of `keywords` and `location` does not suit the template, and why; `None` if both do."""
        for name, value in words.items():
            if value and name not in self.placeholders:
                return name, f"the site's search_url has no {{{name}}}"
            if not value and name in self.in_path:
                return name, f"is needed: {{{name}}} stands in the path of the site's search_url"
        return None


#: The spider that knows job boards; only it is given the site's selectors and pagination.
JOBS_SPIDER = "jobs"
#: Names of the selectors that it takes.
SELECTORS = (
    *("result", "title", "company", "location", "salary", "posted", "url", "description"),
    *("next", "load_more"),
)
#: Who asks for the runs of sites and targets.
OPERATOR = "operator"


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
