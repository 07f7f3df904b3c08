"""`/console/crawl`: the form for a crawl that runs now, later, or repeatedly."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import orjson
from fastapi import Query, Request, Response
from pydantic import Field

from gateway.access.keys import ANYBODY, Scope
from gateway.console.jobs import WAITING
from gateway.console.pages import Pages, page
from gateway.console.parameters import ParameterForm, parameter_form
from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.errors import JobNotFoundError
from gateway.jobs.job import ASKED_FIELDS, NUMBERS, ORDER_FIELDS
from gateway.web.authorisation import Called, needs
from gateway.web.dependencies import Parts
from gateway.web.routes.jobs import job_view
from gateway.web.routes.projects import SpidersQuery, SpiderView, list_projects, list_spiders
from gateway.web.schemas.schedule import ScheduleJobView
from gateway.web.schemas.types import Name, QueryModel, UserId

router = Pages()

#: The page itself offers at most this many spiders. Typed text is searched among all spiders.
_OFFERED = 100


class CrawlPageQuery(QueryModel):
    project: Name | None = None
    version: Name | None = None
    spider: Name | None = None
    job: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = Field(default=None, alias="from")
    user_id: UserId | None = None
    #: When it is to run, unless that is changed in the form.
    run: Literal["now", "daily"] = "now"


class Chosen(NamedTuple):
    """The values with which the form is filled."""

    project: str
    version: str
    spider: str
    #: The fields of an earlier crawl.
    given: dict[str, Any]


@router.page("/console/crawl")
@needs(Scope.CRAWL)
def new_crawl(query: Annotated[CrawlPageQuery, Query()], request: Request, parts: Parts, caller: Called) -> Response:
    given = _earlier(query.job, parts, caller) if query.job else {}
    chosen = Chosen(
        query.project if query.project is not None else given.get("project", ""),
        query.version if query.version is not None else given.get("version") or "",
        query.spider if query.spider is not None else given.get("spider", ""),
        given,
    )
    projects = list_projects(parts, caller).projects
    spider = spider_of(chosen.project, chosen.version, chosen.spider, parts)
    return page(
        request,
        "crawl/new.html",
        projects=projects,
        versions=next((one.versions for one in projects if one.name == chosen.project), []),
        offered=offered(chosen, parts),
        chosen=chosen,
        spider=spider,
        form=_form(chosen, spider),
        numbers=NUMBERS,
        texts=texts_of(given),
        waiting=WAITING,
        user_id=query.user_id or caller.user_id or (caller.key.user_id if caller.key else "operator"),
        asks_for_user=caller.key is None or caller.key.user_id != caller.user_id,
        source=query.job,
        first=query.run,
    )


def _earlier(job_id: str, parts: Parts, caller: Called) -> dict[str, Any]:
    """The fields of an earlier crawl, or of a schedule's crawl, without the values of variables."""
    view = job_view(job_id, parts, caller)
    if isinstance(view, ScheduleJobView):
        owner, crawl = view.schedule.user_id, view.schedule.crawl
        fields = crawl.model_dump(mode="json") if crawl else {}
    else:
        owner = view.user_id
        fields = view.model_dump(mode="json", include=set(ORDER_FIELDS))
        fields |= view.spec.shown().model_dump(mode="json", include=set(ASKED_FIELDS))
    if not caller.may_see(owner):
        raise JobNotFoundError(job_id)
    return fields


def spider_of(project: str | None, version: str | None, name: str | None, parts: Parts) -> SpiderView | None:
    """The spider that would run; `None` for an empty name, or if there is no such spider."""
    if not name:
        return None
    wanted = SpidersQuery(project=project or None, version=version or None, name=name)
    found = list_spiders(wanted, parts, ANYBODY).spiders
    best = [one for one in found if version or one.latest]
    return next((one for one in best if one.project == DEFAULT_PROJECT), best[0] if best else None)


def offered(chosen: Chosen, parts: Parts) -> list[SpiderView]:
    wanted = SpidersQuery(project=chosen.project or None, version=chosen.version or None, limit=_OFFERED)
    return [one for one in list_spiders(wanted, parts, ANYBODY).spiders if chosen.version or one.latest]


def _form(chosen: Chosen, spider: SpiderView | None) -> ParameterForm:
    schema = spider.params_schema if spider else None
    is_own = spider is not None and spider.project == DEFAULT_PROJECT
    return parameter_form(schema, chosen.given.get("params", {}), own=is_own)


def texts_of(given: dict[str, Any]) -> dict[str, str]:
    """The fields of an earlier crawl as texts for the form."""
    expect, dataset = given.get("expect") or {}, given.get("dataset") or {}
    texts = {name: str(given[name]) for name in NUMBERS if given.get(name) is not None}
    texts |= {f"expect.{name}": str(value) for name, value in expect.items() if isinstance(value, int | float)}
    return {
        **texts,
        "start_urls": "\n".join(given.get("start_urls", ())),
        "tags": "\n".join(given.get("tags", ())),
        "webhook_url": next(iter(given.get("webhooks", ())), ""),
        "settings": "\n".join(
            f"{name}={orjson.dumps(value).decode()}" for name, value in given.get("settings", {}).items()
        ),
        "env": "\n".join(f"{name}=" for name in given.get("env", {})),
        "dataset.name": dataset.get("name", ""),
        **{f"dataset.{name}": "\n".join(dataset.get(name) or ()) for name in ("key", "ignore")},
        "expect.fields": "\n".join(f"{name}={value:g}" for name, value in expect.get("fields", {}).items()),
        "fetch": _fetch(given.get("fetch")),
    }


def _fetch(options: dict[str, Any] | None) -> str:
    said = {name: value for name, value in (options or {}).items() if value not in (None, {}, [])}
    return orjson.dumps(said, option=orjson.OPT_INDENT_2).decode() if said else ""
