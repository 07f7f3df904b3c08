"""The parameters of `jobs`: what a site's record says of its search, and what one run asks for."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator

from crawler.spiders.site_spider import Css, SiteParams
from gateway.contract.crawl import PaginationType

#: Where the number of a result page stands in `search_url`.
PAGE = "{page}"
MAX_RESULTS = 10_000
MAX_RESULT_PAGES = 10_000
#: Of a template in which two times 500 characters, each four bytes, are quoted.
MAX_URL = 16_000
Words = Annotated[str, StringConstraints(max_length=500)]


class SiteSelectors(BaseModel):
    """How the postings of a site without JSON-LD are read; those of fields look inside a `result`."""

    model_config = ConfigDict(extra="forbid")

    result: Css | None = Field(default=None, description="Each element of a result page that is a posting.")
    title: Css | None = None
    company: Css | None = None
    location: Css | None = None
    salary: Css | None = None
    posted: Css | None = None
    url: Css | None = Field(
        default=None, description="The link to the posting's own page; without it, its first one."
    )
    description: Css | None = None
    next: Css | None = Field(default=None, description="The link to the next result page.")
    load_more: Css | None = Field(default=None, description="What to click on for more results, in a browser.")


def _if_paginated_by(kind: PaginationType, then: dict[str, JsonValue]) -> JsonValue:
    return {
        "if": {"properties": {"pagination_type": {"const": kind.value}}, "required": ["pagination_type"]},
        "then": then,
    }


_CONDITIONS: list[JsonValue] = [
    _if_paginated_by(
        PaginationType.PAGE_PARAM,
        {"required": ["search_url"], "properties": {"search_url": {"pattern": r"\{page\}"}}},
    ),
    _if_paginated_by(
        PaginationType.INFINITE_SCROLL, {"required": ["render"], "properties": {"render": {"const": True}}}
    ),
]


class JobsParams(SiteParams):
    """Parameters of `jobs`."""

    # said in the schema too, so that a crawl is refused when it is submitted
    model_config = ConfigDict(json_schema_extra={"allOf": _CONDITIONS})

    search_url: Annotated[str, StringConstraints(max_length=MAX_URL)] | None = Field(
        default=None, description="URL of a result page with `{page}` where its number stands; see `page_param`."
    )
    pagination_type: PaginationType = Field(
        default=PaginationType.NONE, description="How to get from one page of results to the next."
    )
    selectors: SiteSelectors = Field(default=SiteSelectors(), description="For sites without JSON-LD.")
    first_page: int = Field(default=1, ge=0, le=1_000_000, description="Number of the page that the start URL is.")
    page_step: int = Field(default=1, ge=1, le=10_000, description="What the next page's number is higher by.")
    max_result_pages: int = Field(default=100, ge=1, le=MAX_RESULT_PAGES, description="Pages of results at most.")
    results_wanted: int | None = Field(
        default=None, ge=1, le=MAX_RESULTS, description="End with so many postings; without it, with all there are."
    )
    is_remote: bool | None = Field(
        default=None, description="`true`: remote postings alone; `false`: those that are not known to be remote."
    )
    keywords: Words | None = Field(default=None, description="What was searched for; told in the items.")
    location: Words | None = Field(default=None, description="Where it was searched for; told in the items.")
    details: bool | None = Field(
        default=None, description="Open each posting's page; without a word, where result pages carry no JSON-LD."
    )
    extra: dict[str, Any] = Field(default_factory=dict, description="Anything else; not looked at.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.pagination_type is PaginationType.PAGE_PARAM and PAGE not in (self.search_url or ""):
            raise ValueError("pagination_type page_param needs a search_url with {page}")
        if self.pagination_type is PaginationType.INFINITE_SCROLL and not self.render:
            raise ValueError("pagination_type infinite_scroll needs render")
        return self
