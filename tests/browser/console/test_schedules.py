"""Schedules: the list, the week, and one of them, which is run, paused, changed and deleted."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from forms import in_full
from playwright.async_api import Page, expect
from stack import wait_until

from gateway.clock import to_iso, utc_now
from gateway.contract.records import SpiderInfo
from gateway.jobs.job import JobStatus, occurrence_id
from gateway.projects.eggs import SpiderStore
from gateway.schedules.schedule import LedgerEntry, LedgerKind, ScheduleState
from gateway.schedules.store import LedgerStore

PARAMS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"words": {"type": "integer", "default": 100}, "deep": {"type": "boolean", "default": False}},
}


@pytest.fixture(scope="module")
def ids(console: Console) -> dict[str, str]:
    """Of schedules, by their names."""
    return {name: _schedule(console, name, **fields) for name, fields in _SCHEDULES.items()}


_ODD = HOSTILE[:60].replace("\x07", "")
_SCHEDULES: dict[str, dict[str, Any]] = {
    "mornings": {"interval": "0 9 * * *", "timezone": "Europe/Paris", "params": {"words": 50}, "jitter": 0},
    "often": {"interval": "every 15m"},
    _ODD: {"interval": "@hourly"},
}


def _schedule(console: Console, name: str, user: str = "anne", **fields: Any) -> str:
    SpiderStore(console.database).publish("n1", [SpiderInfo(project="default", name="seo", params_schema=PARAMS)])
    url = f"https://example.com/{len(name)}/{user}"
    body = {"user_id": user, "spider": "seo", "start_urls": [url], "name": name, **fields}
    answer = console.http.post("/schedules", json=body)
    assert answer.status_code == 201, answer.text
    identity: str = answer.json()["schedule_id"]
    return identity


def _entry(schedule_id: str, job_id: str, due: datetime, **fields: Any) -> LedgerEntry:
    plain = {"kind": LedgerKind.FIRED, "at": due, "recorded_at": due, "late_by_seconds": 0, "rev": 1}
    return LedgerEntry.model_validate({"job_id": job_id, "schedule_id": schedule_id, "due": due, **plain, **fields})


async def test_a_week_shows_what_ran_and_what_comes(
    tab: Tab, console: Console, ids: dict[str, str], axe: Axe, open_tab: OpenTab
) -> None:
    noon = utc_now().replace(hour=12, minute=0, second=0, microsecond=0)
    week = noon - timedelta(days=noon.weekday() + 7)
    ran = console.job(JobStatus.ERROR, schedule_id=ids["mornings"])
    often = [week + timedelta(minutes=15 * number) for number in range(10)]
    entries = [
        _entry(ids["mornings"], ran.id, week),
        _entry(ids["mornings"], "1" * 32, week + timedelta(days=1), late_by_seconds=300),
        _entry(ids["mornings"], "2" * 32, week + timedelta(days=2), kind=LedgerKind.SKIPPED, reason=HOSTILE[:400]),
        _entry(ids["mornings"], "3" * 32, week + timedelta(days=3), kind=LedgerKind.MISSED, missed=4),
        *(_entry(ids["often"], occurrence_id(ids["often"], at), at) for at in often),
    ]
    LedgerStore(console.database).record(entries)
    await tab.page.goto(f"/console/schedules/week?zone=UTC&week={week.date()}")
    row = tab.page.get_by_role("row").filter(has_text="mornings")
    await expect(row.get_by_role("cell")).to_contain_text(
        ["12:00 error", "12:00 late 5 min", "12:00 skipped", "12:00 missed", "", "", ""]
    )
    await expect(row.get_by_role("link", name="12:00").first).to_have_attribute("href", f"/console/jobs/{ran.id}")
    await expect(tab.page.get_by_role("row").filter(has_text="often")).to_contain_text("10 ran")
    await axe(tab)
    # the week after next year's change of the clocks, and back to this one by the keyboard
    await tab.page.goto("/console/schedules/week?week=2127-03-30&zone=Europe/Paris")
    await expect(tab.page.get_by_role("columnheader", name="Sun 30")).to_contain_text("clocks go forward 1 h")
    await expect(row.get_by_text("clocks +1 h")).to_be_visible()
    await tab.page.get_by_role("link", name="Today").press("Enter")
    await expect(tab.page.get_by_role("columnheader").and_(tab.page.locator("[aria-current=date]"))).to_have_count(1)
    async with open_tab(console.url, **PHONE, timezone_id="America/New_York") as phone:
        await phone.page.goto(f"/console/schedules/week?week={week.date()}")
        assert await phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await axe(phone)
        await phone.page.get_by_role("link", name="Mine (America/New_York)").press("Enter")
        await expect(phone.page.get_by_role("link", name="Mine")).to_have_attribute("aria-current", "true")


@pytest.mark.usefixtures("ids")
async def test_a_new_schedule_begins_with_every_day(tab: Tab) -> None:
    await tab.page.goto("/console/schedules")
    await tab.page.get_by_role("link", name="New schedule").press("Enter")
    await expect(tab.page.get_by_role("heading", name="New schedule")).to_be_visible()
    await expect(tab.page.get_by_label("Run", exact=True)).to_have_value("daily")
    await expect(tab.page.get_by_role("button", name="Schedule crawl")).to_be_visible()


@in_full("web/test_schedules.py, and a schedule that is changed here")
async def test_a_schedule_is_found_paused_and_resumed(
    tab: Tab, console: Console, ids: dict[str, str], axe: Axe
) -> None:
    page, identity = tab.page, ids["mornings"]
    await page.goto("/console/schedules")
    await expect(page.get_by_role("link", name="\\u202e")).to_be_visible()
    await axe(tab)
    # an interval and its words are a line each, and the next run is there as a time of the clock, too
    cell = page.get_by_role("row").filter(has_text="mornings").get_by_role("cell").nth(2)
    lines = "element => element.getBoundingClientRect().height / parseFloat(getComputedStyle(element).lineHeight)"
    assert await cell.evaluate(lines) < 3
    await expect(page.locator("[data-clock]").first).to_have_text(re.compile(r"^[A-Z][a-z]{2} \d\d:\d\d$"))
    await page.get_by_label("Search", exact=True).fill("morn")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("row")).to_have_count(2)
    await page.get_by_role("link", name="mornings").press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("mornings")
    await axe(tab)
    await page.get_by_role("button", name="Pause").press("Enter")
    await expect(page.get_by_text("paused", exact=True)).to_be_visible()
    assert console.schedules.get(identity).state is ScheduleState.PAUSED
    await page.get_by_role("button", name="Resume").press("Enter")
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()


async def test_a_schedule_is_changed_run_and_deleted(
    tab: Tab, console: Console, ids: dict[str, str], axe: Axe
) -> None:
    page, identity = tab.page, ids["mornings"]
    await page.goto(f"/console/schedules/{identity}")
    await page.get_by_role("link", name="Edit").press("Enter")
    await expect(page.get_by_label("Run", exact=True)).to_have_value("daily")
    await expect(page.get_by_label("At", exact=True)).to_have_value("09:00")
    await expect(page.get_by_label("words")).to_have_value("50")
    await axe(tab)
    await page.get_by_label("Run", exact=True).select_option("weekdays")
    await page.get_by_label("At", exact=True).fill("18:30")
    await page.get_by_label("Time zone").fill("America/New_York")
    runs = page.get_by_role("region", name="Next runs")
    await expect(runs.get_by_role("listitem").first).to_contain_text("18:30 -0")
    await page.get_by_label("If the previous run has not ended").select_option("queue")
    await page.get_by_label("Timeout (s)").fill("")
    await page.get_by_label("words").fill("100")
    await page.get_by_label("deep").check()
    await page.get_by_text("Expectations, settings, fetching").press("Enter")
    await page.get_by_label("Min items").fill("10")
    await page.get_by_label("Required fields").fill("price=0.9")
    await page.get_by_label("Scrapy settings").fill("DOWNLOAD_DELAY=2")
    await page.get_by_role("button", name="Save").press("Enter")
    await page.wait_for_url(f"**/console/schedules/{identity}")
    _is_changed(console, identity)

    await page.get_by_role("button", name="Run now").press("Enter")
    await page.wait_for_url("**/console/jobs/**")
    job = page.url.partition("/console/jobs/")[2][:32]
    assert console.jobs.get(job).schedule_id == identity
    await page.goto("/console/schedules?q=mornings")
    row = page.get_by_role("row").filter(has_text="mornings")
    await expect(row.locator(f"a[href='/console/jobs/{job}']")).to_be_visible()
    await expect(row.locator(f"a[href='/console/jobs?schedule_id={identity}']")).not_to_have_text("0")
    await page.goto(f"/console/schedules/{identity}")
    await expect(page.get_by_role("region", name="Recent runs").get_by_role("link", name=job[:8])).to_be_visible()
    await _delete(page)
    assert console.http.get(f"/schedules/{identity}").status_code == 404
    tab.complaints.clear()  # the page of a job is another chapter


async def _delete(page: Page) -> None:
    await page.get_by_role("button", name="Delete").press("Enter")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").press("Enter")
    await page.wait_for_url("**/console/schedules")


def _is_changed(console: Console, identity: str) -> None:
    made = console.schedules.get(identity)
    assert (made.timing.interval, made.timing.timezone) == ("30 18 * * MON-FRI", "America/New_York")
    assert made.crawl is not None
    assert made.crawl.spec.expect is not None
    assert (made.crawl.spec.expect.min_items, made.crawl.spec.expect.fields) == (10, {"price": 0.9})
    assert made.crawl.spec.settings == {"DOWNLOAD_DELAY": 2}
    assert (made.overlap, made.crawl.spec.params, made.crawl.spec.timeout) == ("queue", {"deep": True}, 3600)


@in_full("web/test_schedules.py, and a schedule that is changed here")
async def test_what_is_not_shown_stays_and_another_spider_has_its_own_parameters(tab: Tab, console: Console) -> None:
    fetch = {"headers": {"X-Token": "secret"}, "user_agent": "me"}
    identity = _schedule(console, "hidden", interval="@daily", fetch=fetch, ignore_cache=True)
    console.spider("other", schema={"type": "object", "properties": {"colour": {"type": "string"}}})
    page = tab.page
    await page.goto(f"/console/schedules/{identity}/edit")
    assert "secret" not in await page.content()
    await page.get_by_label("Name").first.fill("still hidden")
    await page.get_by_label("Fetch options").fill('{"headers": {"X-Token": "***"}, "user_agent": "you"}')
    await expect(page.get_by_role("region", name="Next runs")).to_contain_text("give the value itself")
    await expect(page.get_by_label("Fetch options")).to_have_attribute("aria-invalid", "true")
    await page.get_by_label("Fetch options").fill('{"headers": {"X-Token": "***"}, "user_agent": "me"}')
    await page.get_by_label("Spider").fill("other")
    await page.get_by_label("Spider").press("Tab")
    await page.get_by_label("colour").fill("red")
    await expect(page.get_by_role("region", name="Next runs").get_by_role("listitem")).to_have_count(10)
    await page.get_by_label("Bypass the HTTP cache").uncheck()
    await page.get_by_role("button", name="Save").press("Enter")
    await page.wait_for_url(f"**/console/schedules/{identity}")
    crawl = console.schedules.get(identity).crawl
    assert crawl is not None
    assert crawl.spec.fetch is not None
    assert (crawl.spec.spider, crawl.spec.params) == ("other", {"colour": "red"})
    assert (crawl.spec.fetch.headers, crawl.spec.fetch.user_agent) == (fetch["headers"], "me")
    assert crawl.spec.ignore_cache is False
    tab.complaints.clear()


@in_full("web/test_schedules.py, and a schedule that is changed here")
async def test_of_two_other_spiders_the_last_one_counts_and_what_was_typed_stays(tab: Tab, console: Console) -> None:
    identity = _schedule(console, "two others", interval="@daily", params={"words": 50})
    colours = {"type": "object", "properties": {"words": {"type": "integer"}, "colour": {"type": "string"}}}
    schemas = {"seo": PARAMS, "quick": colours}
    spiders = [SpiderInfo(project="default", name=name, params_schema=schema) for name, schema in schemas.items()]
    SpiderStore(console.database).publish("n1", spiders)
    page, spider = tab.page, tab.page.get_by_label("Spider")
    wait_until(lambda: console.http.get("/spiders?name=quick").json()["spiders"], what="that the gateway knows it")
    # never answered: the next change ends it
    await page.route("**/edit?*spider=slow*", lambda _: None)
    await page.goto(f"/console/schedules/{identity}/edit")
    await page.get_by_label("words").fill("77")
    async with page.expect_request("**/edit?*spider=slow*"):
        await spider.fill("slow")
        await spider.press("Tab")
    async with page.expect_event("requestfailed", lambda request: "spider=slow" in request.url):
        await spider.fill("quick")
        await spider.press("Tab")
    await expect(page.get_by_label("colour")).to_be_visible()
    await expect(page.get_by_label("words")).to_have_value("77")


@in_full("web/test_schedules.py, and a schedule that is changed here")
async def test_two_changes_at_once_do_not_undo_each_other(tab: Tab, console: Console, ids: dict[str, str]) -> None:
    await tab.page.goto(f"/console/schedules/{ids['often']}/edit")
    await expect(tab.page.get_by_label("Every", exact=True)).to_have_value("15m")
    patched = console.http.patch(f"/schedules/{ids['often']}", json={"name": "renamed"})
    assert patched.status_code == 200
    # the preview of what was typed is given up: it would take away what is said of the refusal
    await tab.page.route("**/crawl/preview", lambda _: None)
    async with tab.page.expect_event("requestfailed", lambda request: request.url.endswith("/crawl/preview")):
        async with tab.page.expect_request("**/crawl/preview"):
            await tab.page.get_by_label("Every", exact=True).fill("20m")
        await tab.page.get_by_role("button", name="Save").press("Enter")
    await expect(tab.page.get_by_text("the schedule has changed")).to_be_visible()
    tab.expect_complaint("409")
    assert console.schedules.get(ids["often"]).timing.interval == "every 15m"


@in_full("web/test_schedules.py, and a schedule that is changed here")
async def test_another_users_schedules_are_not_there(open_tab: OpenTab, locked: Console) -> None:
    body = {"spider": "seo", "start_urls": ["https://annes.example/"], "name": "annes-own", "interval": "@daily"}
    SpiderStore(locked.database).publish("n1", [SpiderInfo(project="default", name="seo", params_schema=PARAMS)])
    key = {"Authorization": f"Bearer {locked.key('anne').token}"}
    annes = locked.http.post("/schedules", json=body, headers=key).json()["schedule_id"]
    soon = to_iso(utc_now() + timedelta(days=1))[:10]
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("bert").token)
        for address in ("", "/week", f"/week?week={soon}", f"/{annes}", f"/{annes}/edit"):
            answer = await tab.page.goto(f"/console/schedules{address}")
            assert answer is not None
            assert (answer.status == 404) == (annes in address)
            assert "annes" not in (await tab.page.content()).replace(annes, "")
        await tab.page.goto("/console/schedules")
        await expect(tab.page.get_by_text("No schedules yet")).to_be_visible()
        tab.complaints.clear()


@in_full("web/test_schedules.py, and a schedule that is changed here")
async def test_a_page_of_a_schedule_and_one_of_a_site_follow_their_runs(tab: Tab, console: Console) -> None:
    identity = _schedule(console, "followed", interval="@hourly")
    site = {"name": "followed", "spider": "seo", "search_url": "https://a.example/"}
    console.http.post("/sites", json=site).raise_for_status()
    for address, ran_for in (
        (f"/console/schedules/{identity}", {"schedule_id": identity}),
        ("/console/sites/followed", {"site": "followed"}),
    ):
        await tab.page.goto(address)
        table = tab.page.get_by_role("region", name="Recent runs, newest first")
        await expect(table).to_have_count(0)
        job = console.job(JobStatus.RUNNING, age=5, **ran_for)
        await tab.page.evaluate("document.body.dispatchEvent(new CustomEvent('tick'))")
        await expect(table.locator(".status")).to_have_text("running")
        console.change(job, status="finished", finished_at=utc_now())
        await tab.page.evaluate("document.body.dispatchEvent(new CustomEvent('tick'))")
        await expect(table.locator(".status")).to_have_text("finished")
