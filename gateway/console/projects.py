"""`/console/projects`: deployed projects, their versions and spiders; for admins, also their
variables and settings.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, NamedTuple

import orjson
from fastapi import Query, Request, Response

from gateway.access.audit import AuditEntry, AuditFilter, AuditStore
from gateway.access.keys import Caller, Scope
from gateway.console.days import histories_of, in_list
from gateway.console.pages import Pages, page
from gateway.console.parameters import ParameterField, parameter_form
from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.jobs.run_days import RunSubject
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts
from gateway.web.routes.environment import get_project_env, get_project_settings
from gateway.web.routes.projects import (
    AnyProjectName,
    ProjectName,
    SpidersQuery,
    SpiderView,
    VersionName,
    get_version_dependencies,
    list_projects,
    list_spiders,
    list_versions,
)
from gateway.web.schemas.types import Cursor, QueryModel

router = Pages()

#: Spiders on one page.
_SPIDERS = 50
#: The route of a deployment in the audit trail. This many of the latest deployments are read, and at most this many
#: failed ones are shown.
_DEPLOYMENT, _READ, _FAILED = "/projects/{project}/versions", 100, 5


class ProjectQuery(QueryModel):
    #: Only spiders of this version; by default, of the latest.
    version: str | None = None
    after: Cursor | None = None


class ShownSpider(NamedTuple):
    info: SpiderView
    parameters: list[ParameterField]
    #: Whether the spider takes parameters besides those in its schema.
    is_open: bool


@router.page("/console/projects")
@needs(Scope.READ, by_project=True)
def projects_page(request: Request, parts: Parts, caller: Called) -> Response:
    found = [one for one in list_projects(parts, caller).projects if one.versions]
    days = histories_of(RunSubject.PROJECT, [one.name for one in found], parts, caller)
    return page(request, "projects/all.html", projects=found, own=DEFAULT_PROJECT, **in_list(days))


@router.page("/console/projects/{project}")
@needs(Scope.READ)
def project_page(
    request: Request, project: AnyProjectName, query: Annotated[ProjectQuery, Query()], parts: Parts, caller: Called
) -> Response:
    known = list_versions(project, parts)
    version = query.version or known.latest
    spiders = list_spiders(
        SpidersQuery(project=known.project, version=version, limit=_SPIDERS, after=query.after), parts, caller
    )
    return page(
        request,
        "projects/one.html",
        known=known,
        version=version,
        spiders=[_shown(info) for info in spiders.spiders],
        following=spiders.next,
        given=_given(known.project, parts, caller),
        failed=_failed(known.project, parts, caller),
    )


@router.page("/console/projects/{project}/versions/{version}")
@needs(Scope.ADMIN)
def version_page(request: Request, project: ProjectName, version: VersionName, parts: Parts) -> Response:
    found = get_version_dependencies(project, version, parts)
    return page(request, "projects/version.html", found=found)


def _failed(project: str, parts: GatewayParts, caller: Caller) -> list[AuditEntry]:
    """The latest refused deployments, from the audit trail, which only admins may see."""
    if Scope.ADMIN not in caller.scopes:
        return []
    found, _ = parts[AuditStore].page(AuditFilter(route=_DEPLOYMENT), _READ)
    refused = [
        one
        for one in found
        if one.resources.get("project") == project and (one.status or 0) >= HTTPStatus.BAD_REQUEST
    ]
    return refused[:_FAILED]


def _shown(info: SpiderView) -> ShownSpider:
    form = parameter_form(info.params_schema, {}, own=info.project == DEFAULT_PROJECT)
    return ShownSpider(info, form.fields, form.is_open)


def _given(project: str, parts: GatewayParts, caller: Caller) -> dict[str, Any] | None:
    """The variables and settings of a deployed project; `None` for the platform's own project, and for users who are
    not admins.
    """
    if Scope.ADMIN not in caller.scopes or project == DEFAULT_PROJECT:
        return None
    settings = get_project_settings(project, parts)
    return {
        "variables": get_project_env(project, parts).variables,
        "settings": orjson.dumps(settings.settings, option=orjson.OPT_INDENT_2).decode() if settings.settings else "",
        "open": "\n".join(settings.open),
        "open_env": "\n".join(settings.open_env),
    }
