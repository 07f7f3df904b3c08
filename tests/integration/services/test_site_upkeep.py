"""Records of sites and targets whose schedules do not match them, because a process died between the two writes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from boards import SEARCH, Boards
from pymongo.database import Database
from site_records import make_site, make_target

from gateway.schedules.schedule import Schedule, ScheduleState
from gateway.sites import edits

#: A target that runs every hour.
HOURLY = {"keywords": "go", "frequency": "60"}


@pytest.fixture
def boards(database: Database[dict[str, Any]]) -> Boards:
    return Boards(database)


def look(boards: Boards) -> None:
    boards.ahead += timedelta(seconds=edits.PACE)
    boards.upkeep.look()


def schedule_of(boards: Boards, target: str) -> Schedule | None:
    return boards.targets.get(target).schedule


def test_a_site_and_a_target_that_have_no_schedule_are_given_one_and_run(boards: Boards) -> None:
    site = make_site(search_url=SEARCH, payload={"keywords": "go", "location": ""}, interval_minutes=60)
    boards.site_store.insert(site)
    target = make_target(**HOURLY, location="")
    boards.target_store.insert(target)
    assert (boards.sites.get("board").schedule, schedule_of(boards, target.id)) == (None, None)
    look(boards)
    jobs = boards.after(70)
    assert {job.schedule_id for job in jobs} == {site.schedule_id, target.schedule_id}
    assert [job.target.keywords_used for job in jobs if job.target] == ["go"]


def test_an_edit_that_nobody_lived_to_carry_out_is_carried_out(boards: Boards) -> None:
    boards.site()
    name, schedule = boards.target()
    assert schedule.state is ScheduleState.ACTIVE
    target = boards.target_store.get(name)
    disabled = target.model_copy(update={"enabled": False, "rev": target.rev + 1, "updated_at": boards.clock()})
    assert boards.target_store.replace(disabled)
    look(boards)
    mended = schedule_of(boards, name)
    assert mended
    assert (mended.state, mended.next_run) == (ScheduleState.PAUSED, None)


def test_a_target_whose_site_is_gone_goes_too(boards: Boards) -> None:
    target = make_target(**HOURLY)
    boards.target_store.insert(target)
    look(boards)
    assert boards.target_store.identified([target.id]) == {}


def test_what_is_as_its_record_says_is_left_alone(boards: Boards) -> None:
    site = boards.site(payload={"keywords": "go", "location": ""})
    disabled, _ = boards.target(enabled=False)
    _, schedule = boards.target()
    before = boards.schedules.read([site.id, schedule.id, boards.targets.get(disabled).record.schedule_id])
    look(boards)
    assert boards.schedules.read([found.id for found in before.schedules]) == before


def test_a_record_that_is_being_written_is_left_to_who_writes_it(boards: Boards) -> None:
    boards.site()
    target = make_target(**HOURLY)
    boards.target_store.insert(target)
    boards.upkeep.look()
    assert schedule_of(boards, target.id) is None
    look(boards)
    assert schedule_of(boards, target.id) is not None


def test_all_come_in_turn_and_none_more_often_than_need_be(boards: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits, "BATCH", 2)
    boards.site()
    targets = [make_target(**HOURLY, number=number) for number in range(1, 6)]
    for target in targets:
        boards.target_store.insert(target)
    for mended in (2, 4, 5):
        look(boards)
        boards.upkeep.look()
        assert sum(schedule_of(boards, target.id) is not None for target in targets) == mended


def test_an_edit_of_a_site_passes_over_a_target_that_is_being_deleted(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards.site()
    first, _ = boards.target()
    second, _ = boards.target()
    pause = boards.edits.pause

    def overtaken(schedule_id: str) -> Schedule:
        if boards.target_store.identified([first]):
            boards.targets.delete(first)
        return pause(schedule_id)

    monkeypatch.setattr(boards.edits, "pause", overtaken)
    assert not boards.sites.edit("board", {"enabled": False}).record.enabled
    left = schedule_of(boards, second)
    assert left
    assert left.state is ScheduleState.PAUSED
