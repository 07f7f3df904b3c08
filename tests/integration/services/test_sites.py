"""Sites and targets with their schedules: what an answer says is what runs, and nothing older runs any more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from boards import SEARCH, Boards
from pymongo.database import Database

from gateway.errors import (
    InvalidRequestError,
    ScheduleNotFoundError,
    SiteDisabledError,
    SiteExistsError,
    SiteInUseError,
    SiteNotFoundError,
    TargetNotFoundError,
)
from gateway.jobs.job import JobStatus, Trigger
from gateway.schedules.schedule import Schedule, ScheduleState

#: A slot may come a tenth of the gap before or after its nominal time.
SPREAD = 0.11


@pytest.fixture
def boards(database: Database[dict[str, Any]]) -> Boards:
    return Boards(database)


def next_in_minutes(boards: Boards, schedule: Schedule) -> float:
    assert schedule.next_run is not None
    return (schedule.next_run - boards.clock()).total_seconds() / 60


def test_a_site_whose_template_needs_words_is_run_by_itself_once_it_has_them(boards: Boards) -> None:
    schedule = boards.site()
    assert (schedule.state, schedule.next_run) == (ScheduleState.PAUSED, None)
    edited = boards.sites.edit("board", {"payload": {"keywords": "go", "location": ""}}).schedule
    assert edited is not None
    assert edited.state is ScheduleState.ACTIVE
    assert next_in_minutes(boards, edited) == pytest.approx(60, rel=SPREAD)
    (job,) = boards.after(70)
    assert (job.user_id, job.trigger, job.exclusive) == ("operator", Trigger.SCHEDULED, "site:board")
    assert job.spec.start_urls == ("https://jobs.example.com/?q=go&l=",)
    assert (job.target, job.spec.timeout, job.max_retries) == (None, 600, 3)
    after = boards.sites.get("board").schedule
    assert after is not None
    assert after.last_run_at == job.created_at


def test_a_target_learns_of_its_run_though_whoever_fired_it_died_before_that(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards.site()
    target, _ = boards.target()
    with monkeypatch.context() as death:
        death.delattr(boards.target_store.__class__, "scheduled")
        with pytest.raises(AttributeError):
            boards.after(70)
    assert boards.target_store.get(target).last_scheduled is None
    boards.after(1)
    now = boards.clock()
    learned = boards.target_store.get(target).last_scheduled
    assert learned
    assert abs(now - learned) < timedelta(minutes=1)


def test_a_target_runs_as_often_as_its_site_unless_it_says_otherwise(boards: Boards) -> None:
    boards.site(interval_minutes=30)
    target, schedule = boards.target()
    _, own = boards.target(frequency="5")
    _, cron = boards.target(frequency="0 9 * * *", timezone="Europe/Paris")
    assert next_in_minutes(boards, schedule) == pytest.approx(30, rel=SPREAD)
    assert next_in_minutes(boards, own) == pytest.approx(5, rel=SPREAD)
    assert (cron.timing.interval, cron.timing.timezone) == ("0 9 * * *", "Europe/Paris")
    boards.sites.edit("board", {"interval_minutes": 10})
    faster, same = boards.targets.get(target).schedule, boards.schedules.get(own.id)
    assert faster is not None
    assert next_in_minutes(boards, faster) == pytest.approx(10, rel=SPREAD)
    assert (same.timing, same.next_run) == (own.timing, own.next_run)


def test_the_run_of_a_target_says_what_its_message_carries(boards: Boards) -> None:
    boards.site(requires_playwright=True, allow_overlap=True)
    target, _ = boards.target(location="Paris", results_wanted=9)
    (job,) = boards.after(70)
    assert job.target is not None
    assert job.target.to_message(0) == {
        "target_id": 1,
        "website_id": 1,
        "website_name": "board",
        "search_url": "https://jobs.example.com/?q=go&l=Paris",
        "requires_playwright": True,
        "pagination_type": "none",
        "keywords_used": "go",
        "location_used": "Paris",
        "attempt_count": 0,
    }
    assert (job.spec.params["results_wanted"], job.render, job.exclusive) == (9, True, None)
    scheduled = boards.targets.get(target).record.last_scheduled
    assert scheduled is not None
    assert abs(scheduled - boards.clock()) < timedelta(seconds=10)


def test_a_run_is_what_the_records_say_when_it_is_fired(boards: Boards) -> None:
    boards.site()
    target, _ = boards.target()
    boards.sites.edit("board", {"search_url": "https://other.example.com/{keywords}", "max_retries": 1})
    boards.targets.edit(target, {"keywords": "c++"})
    (job,) = boards.after(70)
    assert (job.spec.start_urls, job.max_retries) == (("https://other.example.com/c%2B%2B",), 1)


def test_an_edit_is_a_new_revision_of_every_schedule_it_touches_and_keeps_their_slots(boards: Boards) -> None:
    own = boards.site(payload={"keywords": "go", "location": ""})
    target, searched = boards.target()
    boards.sites.edit("board", {"rate_limit": "30/m"})
    after = boards.schedules.get(own.id), boards.schedules.get(searched.id)
    assert after[0].rev > own.rev
    assert after[1].rev > searched.rev
    assert [one.next_run for one in after] == [own.next_run, searched.next_run]
    boards.targets.edit(target, {"results_wanted": 5})
    again = boards.schedules.get(searched.id)
    assert again.rev > after[1].rev
    assert again.next_run == searched.next_run
    assert boards.schedules.get(own.id).rev == after[0].rev


def test_nothing_of_a_disabled_site_is_run(boards: Boards) -> None:
    own = boards.site(payload={"keywords": "go", "location": ""})
    target, searched = boards.target()
    boards.sites.edit("board", {"enabled": False})
    assert boards.after(300) == []
    assert {boards.schedules.get(one.id).state for one in (own, searched)} == {ScheduleState.PAUSED}
    with pytest.raises(SiteDisabledError):
        boards.orders.manual(boards.site_store.get("board"), keywords="go")
    boards.targets.edit(target, {"enabled": False})
    boards.sites.edit("board", {"enabled": True})
    assert [job.schedule_id for job in boards.after(70)] == [own.id]
    boards.targets.edit(target, {"enabled": True})
    assert searched.id in {job.schedule_id for job in boards.after(70)}


def test_a_site_that_targets_name_is_deleted_with_them_or_not_at_all(boards: Boards) -> None:
    own = boards.site(payload={"keywords": "go", "location": ""})
    target, searched = boards.target()
    running = boards.after(70)
    with pytest.raises(SiteInUseError):
        boards.sites.delete("board")
    boards.sites.delete("board", force=True)
    with pytest.raises(SiteNotFoundError):
        boards.sites.get("board")
    with pytest.raises(TargetNotFoundError):
        boards.targets.get(target)
    for gone in (own, searched):
        with pytest.raises(ScheduleNotFoundError):
            boards.schedules.get(gone.id)
    # jobs that were under way go on as they are
    assert {boards.jobs.get(job.id).status for job in running} == {JobStatus.PENDING}
    assert boards.after(300) == []
    assert boards.sites.create({"name": "board", "search_url": SEARCH}).record.number == 2


def test_a_target_is_deleted_with_its_schedule(boards: Boards) -> None:
    boards.site()
    target, searched = boards.target()
    boards.targets.delete(target)
    with pytest.raises(ScheduleNotFoundError):
        boards.schedules.get(searched.id)
    with pytest.raises(TargetNotFoundError):
        boards.targets.delete(target)
    boards.sites.delete("board")


def test_a_schedule_that_is_missing_or_was_ended_is_there_again_after_the_next_edit(boards: Boards) -> None:
    own = boards.site(payload={"keywords": "go", "location": ""})
    target, searched = boards.target()
    boards.schedules.delete(own.id)
    boards.edits.cancel(searched.id)
    with pytest.raises(SiteExistsError):
        boards.site()
    assert boards.schedules.get(own.id).state is ScheduleState.ACTIVE
    assert boards.schedules.get(searched.id).state is ScheduleState.ACTIVE
    boards.schedules.delete(searched.id)
    boards.targets.edit(target, {})
    assert boards.schedules.get(searched.id).target == target


def test_a_template_must_suit_the_targets_that_there_are(boards: Boards) -> None:
    boards.site()
    boards.target(location="Paris")
    with pytest.raises(InvalidRequestError) as refused:
        boards.sites.edit("board", {"search_url": "https://jobs.example.com/?q={keywords}"})
    assert refused.value.field == "search_url"
    assert boards.sites.get("board").record.search_url == SEARCH


def test_a_target_of_no_site_is_refused(boards: Boards) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        boards.target()
    assert refused.value.field == "site"


def test_a_slot_whose_records_no_longer_suit_each_other_says_why_it_is_skipped(boards: Boards) -> None:
    site = boards.sites.create({"name": "board", "search_url": SEARCH}).record
    _, searched = boards.target(location="Paris")
    changed = site.model_copy(update={"rev": 2, "search_url": "https://jobs.example.com/?q={keywords}"})
    assert boards.site_store.replace(changed)
    order = boards.orders.orders([searched])[searched.id]
    assert order.skip == "location: the site's search_url has no {location}"
    assert boards.after(70) == []


def test_a_run_by_hand_is_the_same_crawl_with_other_words(boards: Boards) -> None:
    boards.site(payload={"keywords": "go", "location": "Paris"}, rate_limit="30/m")
    site = boards.site_store.get("board")
    order = boards.orders.manual(site, keywords="c++", results_wanted=5, is_remote=True)
    assert order.crawl.spec.start_urls == ("https://jobs.example.com/?q=c%2B%2B&l=Paris",)
    assert (order.trigger, order.exclusive, order.crawl.spec.site_rate_limit) == (
        Trigger.MANUAL,
        "site:board",
        "30/m",
    )
    assert order.crawl.spec.params["results_wanted"] == 5
    plain = site.model_copy(update={"search_url": "https://jobs.example.com/", "payload": {}})
    with pytest.raises(InvalidRequestError) as refused:
        boards.orders.manual(plain, keywords="go")
    assert refused.value.field == "search_term"
