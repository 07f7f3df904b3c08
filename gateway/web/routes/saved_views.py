"""`/views`: lists of the console that the caller has saved, and those that others share."""

from __future__ import annotations

from typing import Annotated, Self

from fastapi import Path, Query
from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from gateway.access.keys import Caller, Scope
from gateway.access.saved_views import OPERATOR, ListName, SavedView, SavedViews, default_of
from gateway.errors import NotYourUserError
from gateway.web.authorisation import Called, needs
from gateway.web.dependencies import Parts, Router
from gateway.web.errors import problems
from gateway.web.schemas.types import Body, QueryModel, Text, Timestamp

router = Router(prefix="/views", tags=["console"])

_ID = "3f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
_QUERY = "status=error&last=24h&project=shop"
_VIEW: JsonDict = {
    "view_id": _ID,
    "list": "jobs",
    "name": "Failed in the shop",
    "query": _QUERY,
    "shared": True,
    "default": False,
    "own": True,
    "page_url": f"/console/views/{_ID}",
    "created_at": "2027-06-01T09:00:00.000Z",
}
_WISH: JsonDict = {"list": "jobs", "name": "Failed in the shop", "query": _QUERY}
ViewId = Annotated[str, Path(description="As `GET /views` has it.", pattern="^[0-9a-f]{32}$", examples=[_ID])]
#: The query of a page's address: nothing that ends it.
_QueryText = Annotated[Text, Field(max_length=4000, pattern=r"^[^\s#?]*$")]
_Name = Annotated[Text, Field(min_length=1, max_length=60)]


class ViewsQuery(QueryModel):
    list: ListName | None = Field(default=None, description="Only views of this list.")


class SavedViewCreate(Body, json_schema_extra={"examples": [_WISH]}):
    """A list of the console to save."""

    list: ListName = Field(description="The page of the console.")
    name: _Name = Field(description="Saving a view under the name of another one of the list replaces that.")
    query: _QueryText = Field(description="The query of the page's address.")
    shared: bool = Field(default=False, description="Everybody who may use the console may open it.")
    default: bool = Field(default=False, description="The list begins with it.")


class SavedViewUpdate(Body, json_schema_extra={"examples": [{"default": True}]}):
    """The fields to change."""

    query: _QueryText | None = None
    shared: bool | None = None
    default: bool | None = Field(default=None, description="`false`: the list begins with no view.")


class SavedViewOfList(BaseModel, json_schema_extra={"examples": [_VIEW]}):
    """A list of the console that was saved, with its filters."""

    view_id: str
    list: ListName
    name: str
    query: str
    shared: bool
    default: bool = Field(description="The caller's list begins with it.")
    own: bool = Field(description="Whether the view is the caller's, who may change and delete it.")
    page_url: str = Field(description="The view's address in the console. It stays the same when the view changes.")
    created_at: Timestamp

    @classmethod
    def of(cls, view: SavedView, user_id: str, default: SavedView | None) -> Self:
        shown = view.model_dump(include={"list", "name", "query", "shared", "created_at"})
        own, is_default = view.user_id == user_id, default is not None and default.id == view.id
        return cls(view_id=view.id, **shown, default=is_default, own=own, page_url=f"/console/views/{view.id}")


class SavedViewList(BaseModel):
    """The saved views of a list."""

    views: list[SavedViewOfList]


@router.get("", summary="List saved views", responses=problems(503))
@needs(Scope.READ)
def list_saved_views(query: Annotated[ViewsQuery, Query()], parts: Parts, caller: Called) -> SavedViewList:
    """The caller's views in the order in which they were made, at most a hundred."""
    user = viewer_of(caller)
    found = parts[SavedViews].of_user(user)
    defaults = {one: default_of([view for view in found if view.list is one]) for one in ListName}
    wanted = [view for view in found if query.list in {None, view.list}]
    return SavedViewList(views=[SavedViewOfList.of(view, user, defaults[view.list]) for view in wanted])


@router.post("", summary="Save a view", responses=problems(409, 413, 503))
@needs(Scope.READ)
def create_saved_view(body: SavedViewCreate, parts: Parts, caller: Called) -> SavedViewOfList:
    """A list of the console, with its filters, under a name."""
    user = viewer_of(caller)
    fields = body.model_dump(include={"query", "shared"})
    # a view that is saved again without being the default leaves the default as it is
    saved = parts[SavedViews].save(user, body.list, body.name, default=body.default or None, **fields)
    return SavedViewOfList.of(saved, user, parts[SavedViews].default(user, body.list))


@router.get("/{view_id}", summary="A saved view", responses=problems(404, 503))
@needs(Scope.READ)
def get_saved_view(view_id: ViewId, parts: Parts, caller: Called) -> SavedViewOfList:
    """A view of the caller, or a view that another user shares."""
    user, found = viewer_of(caller), parts[SavedViews].get(view_id, caller.may_see)
    return SavedViewOfList.of(found, user, parts[SavedViews].default(user, found.list))


@router.patch("/{view_id}", summary="Change a saved view", responses=problems(403, 404, 413, 503))
@needs(Scope.READ)
def update_saved_view(view_id: ViewId, body: SavedViewUpdate, parts: Parts, caller: Called) -> SavedViewOfList:
    """Only of one's own."""
    found = _own(view_id, parts[SavedViews], caller)
    fields = body.model_dump(include={"query", "shared"}, exclude_none=True)
    saved = parts[SavedViews].change(found, default=body.default, **fields)
    return SavedViewOfList.of(saved, viewer_of(caller), parts[SavedViews].default(found.user_id, found.list))


@router.delete("/{view_id}", status_code=204, summary="Delete a saved view", responses=problems(403, 404, 503))
@needs(Scope.READ)
def delete_saved_view(view_id: ViewId, parts: Parts, caller: Called) -> None:
    """Only of one's own."""
    parts[SavedViews].delete(_own(view_id, parts[SavedViews], caller))


def viewer_of(caller: Caller) -> str:
    """The user whose views are meant: the key's user, also while an admin views pages as another user."""
    return caller.key.user_id if caller.key else OPERATOR


def _own(view_id: str, views: SavedViews, caller: Caller) -> SavedView:
    """A view of the caller. Raises `ViewNotFoundError`, or `NotYourUserError` if another user shares it."""
    found = views.get(view_id, caller.may_see)
    if found.user_id != viewer_of(caller) and Scope.ADMIN not in caller.scopes:
        raise NotYourUserError(found.user_id)
    return found
