"""Saved views: lists of the console with a filter, which users have saved under a name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Any

from attrs import define
from pydantic import BaseModel, Field
from pymongo import ASCENDING, ReturnDocument
from pymongo.database import Database

from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.errors import ConflictError, ViewNotFoundError
from gateway.stores.documents import Documents, reader
from gateway.stores.mongo import Document, Repeating, mongo_errors

#: Maximum number of views that one user can save.
MOST_VIEWS = 100
#: The user id of views while there are no keys.
OPERATOR = ""


class ListName(StrEnum):
    """The console's lists that can be saved: each is a page, `/console/<name>`."""

    JOBS = "jobs"
    DEAD_LETTERS = "dead-letters"
    SCHEDULES = "schedules"

    @property
    def path(self) -> str:
        return f"/console/{self.value}"


class SavedView(BaseModel, extra="ignore", frozen=True, populate_by_name=True):
    """One document. Its `_id` is made from the user, the list and the name, so that saving it again changes it."""

    id: str = Field(alias="_id")
    user_id: str
    list: ListName
    name: str
    #: The query of the page's address, without its `?`.
    query: str
    #: Whether everybody who may use the console can open it.
    shared: bool = False
    #: When it was made the default of its list. The view with the latest time is the default.
    default_at: datetime | None = None
    created_at: datetime

    @property
    def address(self) -> str:
        return f"{self.list.path}?{self.query}"


def view_id(user_id: str, of: ListName, name: str) -> str:
    """32 hexadecimal digits."""
    # a user's id contains no space, so different values give different texts
    return hashlib.sha256(f"{user_id} {of.value} {name}".encode()).hexdigest()[:32]


class ViewStore:
    """The `saved_views` collection."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._views = database["saved_views"]
        self._documents = Documents(self._views, reader(SavedView))
        self._clock = clock

    def get(self, identity: str) -> SavedView | None:
        return self._documents.find_one({"_id": identity})

    def of_user(self, user_id: str, of: ListName | None = None) -> list[SavedView]:
        """The user's views, the oldest first."""
        query: Document = {"user_id": user_id, **({"list": of} if of else {})}
        return self._documents.find(query, MOST_VIEWS, [("created_at", ASCENDING), ("_id", ASCENDING)])

    def count(self, user_id: str) -> int:
        return self._views.count_documents({"user_id": user_id})

    @state_change("saved_views.put")
    def put(self, user_id: str, of: ListName, name: str, fields: Document, *, make: bool = True) -> SavedView | None:
        """Make the view, or change these fields of it. Without `make`, only an existing view is changed; returns
        `None` if there is none.
        """
        identity: Document = {"user_id": user_id, "list": of, "name": name}
        update: Document = {"$set": {**identity, **fields}, "$setOnInsert": {"created_at": self._clock()}}
        changed = self._views.find_one_and_update(
            {"_id": view_id(user_id, of, name)}, update, upsert=make, return_document=ReturnDocument.AFTER
        )
        return None if changed is None else self._documents.one(changed)

    @state_change("saved_views.undefault")
    def undefault(self, user_id: str, of: ListName) -> None:
        """Remove the default of this list of the user."""
        Repeating(self._views).update_many({"user_id": user_id, "list": of}, {"$unset": {"default_at": ""}})

    @state_change("saved_views.delete")
    def delete(self, identity: str) -> None:
        Repeating(self._views).delete_many({"_id": identity})


@define(eq=False, repr=False, slots=False)
class SavedViews:
    """What users can do with their views. All methods raise `UnavailableError`."""

    _store: ViewStore
    _clock: Clock = utc_now

    def of_user(self, user_id: str, of: ListName | None = None) -> list[SavedView]:
        with mongo_errors():
            return self._store.of_user(user_id, of)

    def default(self, user_id: str, of: ListName) -> SavedView | None:
        """The default view of the user's list; `None` if there is none."""
        return default_of(self.of_user(user_id, of))

    def get(self, identity: str, may_see: Callable[[str], bool]) -> SavedView:
        """The view with this id, if the caller may see its user or it is shared. Raises `ViewNotFoundError`."""
        with mongo_errors():
            found = self._store.get(identity)
        if found is None or not (found.shared or may_see(found.user_id)):
            raise ViewNotFoundError(identity)
        return found

    def save(self, user_id: str, of: ListName, name: str, *, default: bool | None, **fields: Any) -> SavedView:
        """Make a view, or change the view with this name. Raises `ConflictError` if the user has too many views."""
        with mongo_errors():
            is_new = self._store.get(view_id(user_id, of, name)) is None
            if is_new and self._store.count(user_id) >= MOST_VIEWS:
                raise ConflictError(f"a user has at most {MOST_VIEWS} views: delete one that is not needed")
            return self._put(user_id, of, name, default=default, fields=fields, make=True)

    def change(self, view: SavedView, *, default: bool | None, **fields: Any) -> SavedView:
        """Change the view. Raises `ViewNotFoundError` if it was deleted since it was read."""
        with mongo_errors():
            return self._put(view.user_id, view.list, view.name, default=default, fields=fields, make=False)

    def _put(
        self, user_id: str, of: ListName, name: str, *, default: bool | None, fields: Document, make: bool
    ) -> SavedView:
        if default is False:
            self._store.undefault(user_id, of)
        chosen = {"default_at": self._clock()} if default else {}
        saved = self._store.put(user_id, of, name, fields | chosen, make=make)
        if saved is None:
            raise ViewNotFoundError(view_id(user_id, of, name))
        return saved

    def delete(self, view: SavedView) -> None:
        with mongo_errors():
            self._store.delete(view.id)


def default_of(views: list[SavedView]) -> SavedView | None:
    """The default among these views of one list; `None` if there is none."""
    chosen = [(view.default_at, view) for view in views if view.default_at is not None]
    return max(chosen, key=lambda one: one[0])[1] if chosen else None
