from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database
from scheduled import HOUR, NINE, make_schedule

from gateway.errors import (
    IdempotencyConflictError,
    InvalidRequestError,
    LiveTwinError,
    ScheduleExistsError,
    ScheduleNotFoundError,
)
from gateway.schedules.schedule import ScheduleState
from gateway.schedules.store import Advance, ScheduleFilter, ScheduleStore

Mongo = Database[dict[str, Any]]


@pytest.fixture
def schedules(database: Mongo) -> ScheduleStore:
    return ScheduleStore(database)


def test_a_schedule_comes_back_as_it_went(schedules: ScheduleStore) -> None:
    schedule = make_schedule(name="morning", max_runs=3)
    schedules.insert(schedule)
    assert schedules.get(schedule.id) == schedule == schedules.find_live(schedule.id)
    with pytest.raises(ScheduleNotFoundError):
        schedules.get("f" * 32)


def test_which_key_was_taken_is_told(schedules: ScheduleStore) -> None:
    schedule = make_schedule(idempotency_key="ada:k")
    schedules.insert(schedule)
    with pytest.raises(ScheduleExistsError):
        schedules.insert(schedule)
    with pytest.raises(LiveTwinError):
        schedules.insert(make_schedule(live_key=schedule.live_key))
    with pytest.raises(IdempotencyConflictError):
        schedules.insert(make_schedule(idempotency_key="ada:k"))
    assert schedules.find_idempotent("ada:k") == schedule
    schedules.overtake(schedule.live_key or "")
    schedules.insert(make_schedule(live_key=schedule.live_key))


def test_a_change_is_made_from_the_revision_that_was_read(schedules: ScheduleStore) -> None:
    schedule, other = make_schedule(), make_schedule()
    schedules.insert(schedule)
    schedules.insert(other)
    changed = schedules.change(schedule, {"name": "new", "next_at": None, "next_run": None})
    assert changed is not None
    assert (changed.rev, changed.name, changed.next_at) == (2, "new", None)
    assert schedules.change(schedule, {"name": "late"}) is None
    with pytest.raises(LiveTwinError):
        schedules.change(changed, {"live_key": other.live_key})


def test_an_advance_tells_whether_all_were_as_they_had_been_read(served: Mongo) -> None:
    schedules = ScheduleStore(served)
    mine, changed = make_schedule(), make_schedule()
    for schedule in (mine, changed):
        schedules.insert(schedule)
    schedules.change(changed, {"name": "new"})
    on = {"next_at": NINE + HOUR, "next_run": NINE + HOUR, "runs": 1}
    assert not schedules.advance([Advance(mine, on), Advance(changed, on)])
    assert (schedules.get(mine.id).next_at, schedules.get(changed.id).next_at) == (NINE + HOUR, NINE)
    assert not schedules.advance([Advance(mine, on)])
    assert schedules.advance([Advance(schedules.get(mine.id), {"next_at": None, "next_run": None})])
    assert schedules.get(mine.id).next_run is None


def test_what_is_due_comes_first_come_first(served: Mongo) -> None:
    schedules = ScheduleStore(served)
    ids = {minutes: make_schedule(next_run=NINE + timedelta(minutes=minutes)) for minutes in (3, 1, 2, 5)}
    for schedule in [*ids.values(), make_schedule(next_run=None, next_at=None)]:
        schedules.insert(schedule)
    now = NINE + timedelta(minutes=3)
    assert [found.id for found in schedules.due(now, 10).schedules] == [ids[n].id for n in (1, 2, 3)]
    assert [found.id for found in schedules.due(now, 1, but=[ids[1].id]).schedules] == [ids[2].id]
    assert (schedules.count_due(now, 10), schedules.count_due(now, 2)) == (3, 2)
    assert schedules.next_run() == NINE + timedelta(minutes=1)
    assert schedules.next_run(but=[ids[1].id]) == NINE + timedelta(minutes=2)


def test_one_that_cannot_be_read_is_told_apart(schedules: ScheduleStore, database: Mongo) -> None:
    good, bad = make_schedule(), make_schedule()
    for schedule in (good, bad):
        schedules.insert(schedule)
    database["schedules"].update_one({"_id": bad.id}, {"$set": {"rev": "x"}})
    found = schedules.read([good.id, bad.id, "f" * 32])
    assert ([one.id for one in found.schedules], found.unreadable) == ([good.id], [bad.id])


def test_pages_come_newest_first_and_only_what_is_wanted(schedules: ScheduleStore) -> None:
    made = [make_schedule(created_at=NINE + timedelta(minutes=n // 2), spider=f"s{n % 2}") for n in range(7)]
    for schedule in made:
        schedules.insert(schedule)
    newest = sorted(made, key=lambda one: (one.created_at, one.id), reverse=True)
    first, cursor = schedules.page(ScheduleFilter(user_id="ada"), 4)
    second, end = schedules.page(ScheduleFilter(user_id="ada"), 4, cursor)
    assert ([*first, *second], end) == (newest, None)
    assert {one.id for one in schedules.page(ScheduleFilter(spider="s1"), 9)[0]} == {one.id for one in made[1::2]}
    assert schedules.page(ScheduleFilter(user_id="bob"), 9) == ([], None)
    assert schedules.page(ScheduleFilter(state=ScheduleState.PAUSED), 9) == ([], None)
    assert (schedules.count(ScheduleState.ACTIVE), schedules.count(ScheduleState.ENDED)) == (7, 0)
    with pytest.raises(InvalidRequestError, match="after"):
        schedules.page(ScheduleFilter(), 4, "nonsense")


def test_what_a_site_runs_has_changed(schedules: ScheduleStore) -> None:
    site, target, other = make_schedule(site="b"), make_schedule(site="b", target="t"), make_schedule(site="c")
    for schedule in (site, target, other):
        schedules.insert(schedule)
    assert set(schedules.touch(site="b")) == {site.id, target.id}
    assert schedules.touch(target="t") == [target.id]
    assert schedules.touch(target="none") == []
    assert [schedules.get(one.id).rev for one in (site, target, other)] == [2, 3, 1]


def test_only_the_run_that_was_counted_last_can_be_uncounted(schedules: ScheduleStore) -> None:
    schedule = make_schedule(runs=2, last_job_id="b", last_run_at=NINE)
    schedules.insert(schedule)
    schedules.uncount(schedule.id, "a")
    schedules.uncount(schedule.id, "b")
    schedules.uncount(schedule.id, "b")
    after = schedules.get(schedule.id)
    assert (after.runs, after.last_job_id, after.last_run_at) == (1, None, None)


def test_a_schedule_is_deleted_once(schedules: ScheduleStore) -> None:
    schedule = make_schedule()
    schedules.insert(schedule)
    assert (schedules.delete(schedule.id), schedules.delete(schedule.id)) == (True, False)
