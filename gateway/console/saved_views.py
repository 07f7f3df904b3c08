"""The saved views above a list, and `/console/views/…`, to which the link of a view leads."""

from __future__ import annotations

from typing import Any, NamedTuple

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from starlette.datastructures import QueryParams

from gateway.access.keys import Caller, Scope
from gateway.access.saved_views import ListName, SavedViews, default_of
from gateway.console.pages import Pages
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts
from gateway.web.routes.saved_views import SavedViewOfList, ViewId, viewer_of

router = Pages()


class OwnViews(NamedTuple):
    """The context of `views.html`."""

    of: str
    views: list[dict[str, Any]]


def own_views(of: ListName, request: Request, parts: GatewayParts, caller: Caller) -> OwnViews | Response:
    """The caller's views of the list; or a redirection to the default, if the address says nothing, as the one of
    the navigation. A caller who may see some projects has none: a query may name others.
    """
    if caller.projects:
        return OwnViews(of, [])
    user = viewer_of(caller)
    found = parts[SavedViews].of_user(user, of)
    first = default_of(found)
    # not to a view with an empty query, which would lead here again
    if first is not None and not request.query_params and QueryParams(first.query):
        return RedirectResponse(first.address)
    return OwnViews(of, [SavedViewOfList.of(view, user, first).model_dump(mode="json") for view in found])


@router.page("/console/views/{view_id}")
@needs(Scope.READ)
def view_page(view_id: ViewId, parts: Parts, caller: Called) -> Response:
    return RedirectResponse(parts[SavedViews].get(view_id, caller.may_see).address)
