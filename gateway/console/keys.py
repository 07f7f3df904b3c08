"""`/console/keys`: the keys for calls of the gateway. A key is shown only once, when it is made."""

from __future__ import annotations

from fastapi import Request, Response

from gateway.access.keys import ANYBODY, Scope
from gateway.console.pages import Pages, page
from gateway.web.authorisation import needs
from gateway.web.dependencies import Parts
from gateway.web.routes.keys import list_keys
from gateway.web.routes.projects import list_projects

router = Pages()

#: By scope: the words in the form for what it allows.
_SCOPES = {
    Scope.READ: "see the user's own jobs, items and logs",
    Scope.READ_ALL: "see the jobs, items and logs of all users",
    Scope.AGENT: "see the user's own jobs, start crawls: for AI agents",
    Scope.CRAWL: "see the user's own jobs, start and cancel crawls",
    Scope.ADMIN: "do everything, for all users",
    Scope.METRICS: "read Prometheus metrics, nothing else",
}


@router.page("/console/keys")
@needs(Scope.ADMIN)
def keys_page(request: Request, parts: Parts) -> Response:
    found = sorted(list_keys(parts).keys, key=lambda key: key.created_at, reverse=True)
    projects = [one.name for one in list_projects(parts, ANYBODY).projects]
    return page(request, "keys.html", keys=found, scopes=_SCOPES, projects=projects)
