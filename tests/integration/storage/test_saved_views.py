"""Views that users save: each its own, those that are shared, and the one with which a list begins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from gateway.access import saved_views
from gateway.access.saved_views import ListName, SavedView, SavedViews, ViewStore
from gateway.errors import ConflictError, ViewNotFoundError


class Keeping:
    def __init__(self, database: Database[dict[str, Any]]) -> None:
        self.now = datetime(2027, 6, 1, tzinfo=UTC)
        self.views = SavedViews(ViewStore(database, self.clock), self.clock)

    def clock(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    def save(self, name: str, query: str = "", user: str = "ada", *, default: bool | None = None) -> SavedView:
        return self.views.save(user, ListName.JOBS, name, default=default, query=query)

    def names(self, user: str = "ada") -> list[str]:
        return [view.name for view in self.views.of_user(user)]

    def first(self, of: ListName = ListName.JOBS) -> str | None:
        found = self.views.default("ada", of)
        return found and found.name


@pytest.fixture
def keeping(database: Database[dict[str, Any]]) -> Keeping:
    return Keeping(database)


def test_a_view_that_is_saved_again_under_its_name_is_changed_and_keeps_its_link(keeping: Keeping) -> None:
    first = keeping.save("failed", "status=error")
    keeping.save("slow")
    again = keeping.save("failed", "status=error&last=24h")
    assert (again.id, again.created_at, again.address) == (
        first.id,
        first.created_at,
        "/console/jobs?status=error&last=24h",
    )
    assert keeping.names() == ["failed", "slow"]
    assert keeping.save("failed", user="bert").id != first.id


def test_a_list_begins_with_the_view_that_was_made_the_default_last(keeping: Keeping) -> None:
    assert keeping.first() is None
    keeping.save("failed", default=True)
    keeping.save("slow", default=True)
    keeping.save("failed", "status=error")
    keeping.views.save("ada", ListName.SCHEDULES, "paused", default=True, query="state=paused")
    assert (keeping.first(), keeping.first(ListName.SCHEDULES)) == ("slow", "paused")
    keeping.views.delete(keeping.save("slow"))
    assert keeping.first() == "failed"
    keeping.save("failed", default=False)
    assert (keeping.first(), keeping.first(ListName.SCHEDULES)) == (None, "paused")


def test_others_see_a_view_only_while_it_is_shared(keeping: Keeping) -> None:
    view = keeping.save("failed")
    with pytest.raises(ViewNotFoundError):
        keeping.views.get(view.id, "bert".__eq__)
    assert keeping.views.get(view.id, "ada".__eq__) == view
    keeping.views.save("ada", ListName.JOBS, "failed", default=None, shared=True)
    assert keeping.views.get(view.id, "bert".__eq__).shared
    assert keeping.names("bert") == []


def test_a_user_has_so_many_and_no_more(keeping: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_views, "MOST_VIEWS", 2)
    keeping.save("1")
    keeping.save("2")
    with pytest.raises(ConflictError, match="at most 2"):
        keeping.save("3")
    keeping.save("2", "status=error")
    keeping.save("3", user="bert")
    assert keeping.names() == ["1", "2"]


def test_a_view_that_is_deleted_while_it_is_changed_stays_deleted(keeping: Keeping) -> None:
    view = keeping.save("failed", "status=error")
    keeping.views.delete(view)
    with pytest.raises(ViewNotFoundError):
        keeping.views.change(view, default=True)
    assert keeping.names() == []
    assert keeping.save("failed", "status=error").default_at is None
