"""`/console/keys`: the keys for calls of the gateway. A key is shown only once, when it is made."""

from __future__ import annotations

from fastapi import Request, Response

from gateway.access.keys import Scope
from gateway.console.pages import Pages, page
from gateway.web.authorisation import needs
from gateway.web.dependencies import Parts
from gateway.web.routes.keys import list_keys

router = Pages()

#: By scope: the words in the form for what it allows.
_SCOPES = {
    Scope.READ: "view the user's jobs, items and logs",
    Scope.READ_ALL: "view the jobs, items and logs of all users",
    Scope.AGENT: "read, and crawl now: for AI agents",
    Scope.CRAWL: "read, and start and cancel crawls",
    Scope.ADMIN: "full access, for all users",
    Scope.METRICS: "Prometheus metrics only",
}


@router.page("/console/keys")
@needs(Scope.ADMIN)
def keys_page(request: Request, parts: Parts) -> Response:
    found = sorted(list_keys(parts).keys, key=lambda key: key.created_at, reverse=True)
    return page(request, "keys.html", keys=found, scopes=_SCOPES)
