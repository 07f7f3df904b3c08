"""`/sites` and `/targets`."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic.config import JsonDict
from pydantic_core import PydanticUndefined

from gateway.access.keys import Scope
from gateway.contract.crawl import DEFAULT_PROJECT, DatasetOrder, Expect, FetchOptions, PaginationType, RateText
from gateway.contract.param_formats import MAX_LENGTH
from gateway.schedules.schedule import Schedule, ScheduleState
from gateway.sites.crawl import is_job_board
from gateway.sites.edits import SiteService, TargetService
from gateway.sites.site import JOBS_SPIDER, KEYWORDS, LOCATION, SearchUrl, Site, Target
from gateway.sites.store import SiteStore
from gateway.web.authorisation import needs
from gateway.web.dependencies import Parts, Router
from gateway.web.errors import problems
from gateway.web.middleware import note_changes
from gateway.web.schemas.types import Body, Name, Params, QueryBoolean, QueryModel, Text, Timestamp, UrlText

#: Minutes of a year.
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
    "expect": {"min_items": 10, "fields": {"company": 0.8}},
}
_OTHER: JsonDict = {
    "name": "shop",
    "spider": "seo",
    "search_url": "https://shop.example.com/",
    "interval_minutes": 1440,
}

#: The name stands in a Redis key, a URL and a lease's name.
SiteName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="Letters, digits and `. _ -`. The name cannot be changed.",
    ),
]
Selector = Annotated[Text, Field(min_length=1, max_length=MAX_LENGTH)]
Seconds = Annotated[float, Field(ge=0, le=3600)]


class Named(Body, strict=True):
    """A body in which an absent field means something else than a given one."""

    def given(self) -> dict[str, Any]:
        """The fields that the request names."""
        return {name: getattr(self, name) for name in self.model_fields_set}


Changes = TypeVar("Changes", bound=Named)


def changes(fixed: str) -> Callable[[type[Changes]], type[Changes]]:
    """Decorator that makes a subclass of a request's model the model of its changes: the field `fixed` is removed,
    and all others are optional. An absent field is not the same as null, which some fields accept.
    """

    def changed(model: type[Changes]) -> type[Changes]:
        fields = model.__pydantic_fields__
        del fields[fixed]
        for name, required in fields.items():
            fields[name] = field = copy(required)
            # a `default_factory`, because its default is not in the schema
            field.default, field.default_factory = PydanticUndefined, type(None)
        model.model_rebuild(force=True)
        return model

    return changed


class SiteCreate(Named, json_schema_extra={"examples": [_BOARD, _OTHER]}):
    """Only `name` and `search_url` are required."""

    name: SiteName
    enabled: bool = Field(default=True, description="If `false`, neither the site nor its targets are run.")
    project: Name = Field(
        default=DEFAULT_PROJECT, description="The project of a deployed egg; `default` is the platform's own."
    )
    spider: Name = Field(default=JOBS_SPIDER, description="A spider of `GET /spiders`.")
    search_url: UrlText = Field(
        description="The URL of a search, with `{keywords}`, `{location}` and `{page}` as placeholders."
    )
    requires_playwright: bool = Field(default=False, description="Whether its pages are rendered in a browser.")
    # a strict model takes no text for an enumeration
    pagination_type: PaginationType = Field(
        default=PaginationType.NONE,
        strict=False,
        description="How the spider `jobs` gets from one page of results to the next.",
    )
    selectors: dict[str, Selector] = Field(
        default_factory=dict,
        max_length=50,
        description="CSS selectors by name, which the spider `jobs` uses on pages without JSON-LD.",
    )
    interval_minutes: int = Field(
        default=60,
        ge=1,
        le=_MOST_MINUTES,
        description="Minutes between two runs of the site, and of its targets that have no frequency of their own.",
    )
    min_pause_seconds: Seconds = Field(default=2.0, description="The shortest pause between two requests of a run.")
    max_pause_seconds: Seconds = Field(
        default=8.0, description="The longest pause. Each pause is a random time between the two."
    )
    max_retries: int = Field(default=3, ge=0, le=20, description="How many times a failed run is tried again.")
    rate_limit: RateText | None = Field(
        default=None,
        description="The rate limit for all runs of the site together, such as `30/m`; null: no limit.",
    )
    allow_overlap: bool = Field(
        default=False, description="Whether two runs of the site may run at once; if not, the second one waits."
    )
    payload: Params = Field(
        default_factory=dict,
        description="Further parameters for the spider. `keywords` and `location` are used by the site's own runs.",
    )
    fetch: FetchOptions = Field(
        default=FetchOptions(), description="Headers, cookies and other options; the pauses have fields of their own."
    )
    dataset: DatasetOrder | None = Field(
        default=None,
        description="The dataset that the items of its runs and of its targets' runs become part of: a name, or an "
        "object with its options.",
    )
    expect: Expect | None = Field(
        default=None, description="What each run must find. A run that finds less is `partial`; null: nothing."
    )


@changes(fixed="name")
class SiteUpdate(SiteCreate, json_schema_extra={"examples": [{"enabled": False}, {"rate_limit": "10/m"}]}):
    """Absent fields stay as they are; a selector, a payload or `fetch` is replaced as a whole."""


class SiteView(BaseModel):
    """A site, and the state of its own schedule."""

    name: str
    number: int = Field(description="The site's number: `website_id` in messages, `site_schedule_id` in run records.")
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
    fetch: FetchOptions = Field(
        description="The options, without the values of headers and cookies and without the proxy's password."
    )
    expect: Expect | None = Field(description="What each run must find; a run that finds less is `partial`.")
    dataset: DatasetOrder | None = Field(description="The dataset that the items of its runs become part of.")
    schedule_id: str = Field(description="The id of the site's schedule in `/schedules`.")
    schedule_state: ScheduleState | None = Field(
        description="The state of its schedule. While `paused`, it runs only when somebody asks."
    )
    last_run_at: Timestamp | None = Field(description="When its schedule last ran it.")
    next_run_at: Timestamp | None = Field(
        description="The next run by its schedule; null if the site is disabled or its search URL needs words."
    )
    created_at: Timestamp
    updated_at: Timestamp

    @classmethod
    def of(cls, site: Site, schedule: Schedule | None) -> SiteView:
        return cls(
            **site.model_dump(exclude={"rev", "fetch", "expect", "dataset"}),
            fetch=site.fetch.masked(),
            expect=site.expect,
            dataset=site.dataset,
            schedule_state=schedule.state if schedule else None,
            last_run_at=schedule.last_run_at if schedule else None,
            next_run_at=schedule.next_run if schedule else None,
        )


class SitePage(BaseModel):
    """A page of sites."""

    sites: list[SiteView] = Field(description="Sorted by name.")
    next: str | None = Field(description="The value of `after` for the next page; null on the last page.")


class SitesQuery(QueryModel):
    enabled: QueryBoolean | None = Field(
        default=None, description="Only enabled ones (`true`), or only disabled ones (`false`)."
    )
    limit: int = Field(default=50, ge=1, le=200, description="The size of a page.")
    after: Annotated[Text, Field(max_length=100)] | None = Field(
        default=None, description="The `next` of the previous page."
    )


class SiteDeletion(QueryModel):
    force: QueryBoolean = Field(default=False, description="Delete its targets too.")


class SiteAbilities(BaseModel):
    """What a request for a run of a site may contain."""

    site_name: str
    enabled: bool = Field(description="A disabled site cannot be run.")
    spider: str
    search_url: str
    keywords: bool = Field(description="Whether a run may have a `search_term`.")
    location: bool = Field(description="Whether a run may have a `location`.")
    is_remote: bool = Field(description="Whether a run may have `is_remote`.")
    results_wanted: bool = Field(description="Whether a run may have `results_wanted`.")
    pagination_type: PaginationType
    requires_playwright: bool = Field(description="Whether it needs a node with a browser.")

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
    """What can be done with each site."""

    sites: list[SiteAbilities] = Field(description="Sorted by name.")


router = Router(tags=["sites"])

NamedSite = Annotated[str, Path(description="The name that `POST /sites` was given.", examples=["example-jobs"])]


@router.get("/sites", summary="List sites", responses=problems(503))
@needs(Scope.CRAWL)
async def list_sites(query: Annotated[SitesQuery, Query()], parts: Parts) -> SitePage:
    """By name. Pass `next` as `after` for the page that follows."""
    found, following = await parts.threads.run(
        lambda: parts[SiteService].page(query.limit, query.after, enabled=query.enabled)
    )
    return SitePage(sites=[SiteView.of(*one) for one in found], next=following)


@router.post("/sites", summary="Add a site", status_code=201, responses=problems(409, 413, 503))
@needs(Scope.ADMIN)
def create_site(body: SiteCreate, parts: Parts, response: Response) -> SiteView:
    """It is crawled every `interval_minutes` from now on, unless its template needs words that `payload` lacks."""
    view = SiteView.of(*parts[SiteService].create(body.given()))
    response.headers["Location"] = f"/sites/{view.name}"
    return view


@router.get("/sites/{name}", summary="A site", responses=problems(404, 503))
@needs(Scope.CRAWL)
def get_site(name: NamedSite, parts: Parts) -> SiteView:
    """With its runs so far."""
    return SiteView.of(*parts[SiteService].get(name))


@router.patch("/sites/{name}", summary="Change a site", responses=problems(404, 409, 413, 503))
@needs(Scope.ADMIN)
def update_site(name: NamedSite, body: SiteUpdate, request: Request, parts: Parts) -> SiteView:
    """The given fields are replaced, and after the answer no run of the old version begins. Disabling a site pauses
    its schedule and those of its targets; runs that have begun go on.
    """
    before = get_site(name, parts)
    after = SiteView.of(*parts[SiteService].edit(name, body.given()))
    note_changes(request, before, after)
    return after


@router.delete("/sites/{name}", summary="Delete a site", status_code=204, responses=problems(404, 409, 503))
@needs(Scope.ADMIN)
def delete_site(name: NamedSite, query: Annotated[SiteDeletion, Query()], parts: Parts) -> None:
    """A site with targets needs `force=true`, which deletes them too. Runs that have been made go on."""
    parts[SiteService].delete(name, force=query.force)


@router.get("/jobs/sites", summary="What a run of each site may contain", responses=problems(503))
@needs(Scope.READ)
def list_site_abilities(parts: Parts) -> SiteAbilitiesList:
    """For `POST /jobs/scrape`: every site, and the options of a run of it."""
    return SiteAbilitiesList(sites=[SiteAbilities.of(site) for site in parts[SiteStore].all()])


#: Maximum number of results that a run may be limited to: the spider has the same limit.
_MOST_RESULTS = 10_000


def _minutes_or_cron(given: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Raise one error for both types: pydantic would report one for each, under names that clients do not know."""
    try:
        return check(given)
    except ValidationError:
        raise ValueError(f"must be minutes (1 to {_MOST_MINUTES}), or cron such as `0 9 * * *`") from None


Words = Annotated[Text, Field(max_length=500)]
Frequency = Annotated[
    Annotated[int, Field(ge=1, le=_MOST_MINUTES)] | Annotated[Text, Field(min_length=1, max_length=200)] | None,
    WrapValidator(_minutes_or_cron),
    Field(description="Minutes, or cron (`0 9 * * *`, `@daily`); null: the site's `interval_minutes`."),
]


class TargetCreate(Named):
    """Only `site` is required."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"site": "example-jobs", "keywords": "python", "location": "Paris", "frequency": "0 9 * * MON-FRI"},
                {"site": "example-jobs", "keywords": "welder", "frequency": 30, "results_wanted": 100},
            ]
        },
    )

    site: SiteName
    keywords: Words = Field(default="", description="The words for `{keywords}` in the site's search URL.")
    location: Words = Field(default="", description="The place for `{location}` in the site's search URL.")
    frequency: Frequency = None
    timezone: Text = Field(default="UTC", min_length=1, max_length=64, description="The time zone for cron.")
    enabled: bool = Field(default=True, description="Whether its schedule runs it.")
    results_wanted: Annotated[int, Field(ge=1, le=_MOST_RESULTS)] | None = Field(
        default=None, description="A run ends after this many results; null: no limit."
    )
    is_remote: bool | None = Field(
        default=None, description="`true`: only remote postings; `false`: only the others; null: all."
    )

    def given(self) -> dict[str, Any]:
        """The fields that the request names; minutes become text."""
        given = super().given()
        if isinstance(given.get("frequency"), int):
            given["frequency"] = str(given["frequency"])
        return given


@changes(fixed="site")
class TargetUpdate(TargetCreate, json_schema_extra={"examples": [{"frequency": "@daily"}]}):
    """Absent fields stay as they are. A target stays with its site."""


class TargetView(BaseModel):
    """A target, and the state of its schedule."""

    id: str
    number: int = Field(
        description="The target's number: `target_id` in messages. It can be used instead of the id in every path."
    )
    site: str
    keywords: str
    location: str
    frequency: int | str | None
    timezone: str
    enabled: bool
    results_wanted: int | None
    is_remote: bool | None
    schedule_id: str = Field(description="The id of its schedule in `/schedules`.")
    last_scheduled: Timestamp | None = Field(description="When a run of it was last handed to a worker.")
    next_run: Timestamp | None = Field(description="Null if it or its site is disabled.")
    created_at: Timestamp
    updated_at: Timestamp

    @classmethod
    def of(cls, target: Target, schedule: Schedule | None) -> TargetView:
        text = target.frequency
        return cls(
            **target.model_dump(exclude={"rev", "frequency"}),
            frequency=int(text) if text and text.isascii() and text.isdigit() else text,
            next_run=schedule.next_run if schedule else None,
        )


class TargetPage(BaseModel):
    """A page of targets."""

    targets: list[TargetView] = Field(description="Sorted by number.")
    next: str | None = Field(description="The value of `after` for the next page; null on the last page.")


class TargetsQuery(QueryModel):
    site: SiteName | None = Field(default=None, description="Only of this site.")
    enabled: QueryBoolean | None = Field(
        default=None, description="Only enabled ones (`true`), or only disabled ones (`false`)."
    )
    limit: int = Field(default=50, ge=1, le=200, description="The size of a page.")
    after: Annotated[str, Field(pattern="^[0-9]{1,15}$")] | None = Field(
        default=None, description="The `next` of the previous page."
    )


targets_router = Router(prefix="/targets", tags=["sites"])

TargetId = Annotated[str, Path(description="The target's id, or its number.", examples=["7"])]


@targets_router.get("", summary="List targets", responses=problems(503))
@needs(Scope.CRAWL)
async def list_targets(query: Annotated[TargetsQuery, Query()], parts: Parts) -> TargetPage:
    """By number. Pass `next` as `after` for the page that follows."""
    after = None if query.after is None else int(query.after)
    found, following = await parts.threads.run(
        lambda: parts[TargetService].page(query.limit, after, site=query.site, enabled=query.enabled)
    )
    next_page = None if following is None else str(following)
    return TargetPage(targets=[TargetView.of(*one) for one in found], next=next_page)


@targets_router.post("", summary="Add a target", status_code=201, responses=problems(409, 413, 503))
@needs(Scope.ADMIN)
def create_target(body: TargetCreate, parts: Parts, response: Response) -> TargetView:
    """Adds something to search for on a site, again and again, from now on."""
    view = TargetView.of(*parts[TargetService].create(body.given()))
    response.headers["Location"] = f"/targets/{view.id}"
    return view


@targets_router.get("/{target_id}", summary="A target", responses=problems(404, 503))
@needs(Scope.CRAWL)
def get_target(target_id: TargetId, parts: Parts) -> TargetView:
    """What is searched for, and how often."""
    return TargetView.of(*parts[TargetService].get(target_id))


@targets_router.patch("/{target_id}", summary="Change a target", responses=problems(404, 409, 413, 503))
@needs(Scope.ADMIN)
def update_target(target_id: TargetId, body: TargetUpdate, request: Request, parts: Parts) -> TargetView:
    """The given fields are replaced, and after the answer no run of the old version begins."""
    before = get_target(target_id, parts)
    after = TargetView.of(*parts[TargetService].edit(target_id, body.given()))
    note_changes(request, before, after)
    return after


@targets_router.delete("/{target_id}", summary="Delete a target", status_code=204, responses=problems(404, 409, 503))
@needs(Scope.ADMIN)
def delete_target(target_id: TargetId, parts: Parts) -> None:
    """Deletes the target with its schedule. Runs that have been made go on."""
    parts[TargetService].delete(target_id)
