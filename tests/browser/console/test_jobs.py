"""The list of jobs, and dead letters."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta

from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from forms import in_full
from playwright.async_api import Locator, Page, Route, expect

from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.contract.records import Progress, SpiderInfo
from gateway.jobs.job import JobStatus
from gateway.jobs.messages import progress_event
from gateway.projects.eggs import SpiderStore
from gateway.stores.redis import job_channel


def rows(page: Page) -> Locator:
    return page.locator("tr[data-job]")


async def test_filters_views_and_hostile_text(tab: Tab, console: Console, axe: Axe) -> None:
    user = "filters"
    failed = console.job(JobStatus.ERROR, user_id=user, message=HOSTILE, tags=[HOSTILE], age=60)
    console.job(JobStatus.FINISHED, user_id=user, age=7200)
    page = tab.page
    await page.goto(f"/console/jobs?user_id={user}")
    await expect(rows(page)).to_have_count(2)
    await expect(page.get_by_text("2 jobs", exact=True)).to_be_visible()
    await expect(page.get_by_role("img", name="Start times and durations of 2 jobs")).to_be_visible()
    await expect(rows(page).first).to_contain_text("<script>alert(1)</script><b>bold</b>\\u202egnp.exe\\x07xxx")
    await axe(tab)
    all_jobs = page.get_by_role("link", name="All", exact=True)
    await expect(all_jobs).to_have_attribute("aria-current", "page")
    # by keyboard alone: the address has the filter, and the field keeps the focus
    await page.get_by_label("error", exact=True).press("Space")
    await expect(rows(page)).to_have_count(1)
    await page.wait_for_url("**status=error**")
    await expect(all_jobs).not_to_have_attribute("aria-current", "page")
    await page.get_by_label("Search", exact=True).press_sequentially(failed.id[:6])
    await page.wait_for_url(f"**q={failed.id[:6]}**")
    await expect(page.get_by_label("Search", exact=True)).to_be_focused()
    await page.get_by_role("button", name="Save this view…").press("Enter")
    await page.get_by_label("Name").fill("Mine")
    await page.get_by_label("Use as the default view").check()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="Mine")).to_have_attribute("aria-current", "page")
    # the list without a condition opens with the view that is to come first
    await page.goto("/console/jobs")
    await page.wait_for_url("**status=error**")
    await expect(rows(page)).to_have_count(1)
    await page.get_by_role("button", name="Delete view").press("Enter")
    await expect(page.get_by_role("link", name="Mine")).to_have_count(0)


async def test_a_site_is_stopped_with_what_would_crawl_it_again(tab: Tab, console: Console, axe: Axe) -> None:
    user, page = "stopping", tab.page
    has_asked = console.job(JobStatus.RUNNING, user_id=user, progress={"hosts": ["www.stop.example"]})
    console.job(JobStatus.RUNNING, user_id=user)
    console.spider("seo")
    body = {"spider": "seo", "start_urls": ["http://stop.example/"], "interval": "@daily", "user_id": user}
    schedule = console.http.post("/schedules", json=body).raise_for_status().json()["schedule_id"]
    await page.goto(f"/console/jobs?user_id={user}")
    await expect(rows(page)).to_have_count(2)
    await page.get_by_label("Host", exact=True).fill("stop.example")
    await expect(rows(page)).to_have_count(1)
    await expect(rows(page)).to_have_attribute("data-job", has_asked.id)
    note = page.locator("#results .note")
    await expect(note).to_contain_text("1 active schedule crawls stop.example, too")
    await axe(tab)
    await note.get_by_role("button", name="Pause it").click()
    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(note).to_contain_text("1 paused schedule of stop.example")
    assert console.http.get(f"/schedules/{schedule}").json()["state"] == "paused"
    # or both at once
    console.http.post(f"/schedules/{schedule}/resume").raise_for_status()
    await page.reload()
    await page.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("host stop.example")
    # who asks for a host alone wants to stop all of it
    await expect(dialog.get_by_label("Also pause the schedule that would start such jobs again")).to_be_checked()
    await axe(tab)
    await dialog.get_by_role("button", name="Cancel 1 job").click()
    await expect(dialog).to_contain_text("1 cancelled, 1 schedule paused.")
    assert console.http.get(f"/schedules/{schedule}").json()["state"] == "paused"
    await page.reload()
    await expect(page.get_by_text("1 paused schedule of stop.example")).to_be_visible()
    await page.get_by_role("button", name="Resume it").click()
    await expect(page.get_by_text("1 active schedule crawls stop.example")).to_be_visible()
    await page.goto("/console/sites")
    await page.get_by_label("Stop all crawls of a host").fill("stop.example")
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Host")).to_have_value("stop.example")


async def test_a_view_is_shared_by_a_link_and_is_there_in_every_browser(open_tab: OpenTab, locked: Console) -> None:
    async with open_tab(locked.url) as tab:
        page = tab.page
        await tab.sign_in(locked.key("anne").token)
        # what a browser kept for an earlier release is taken over
        earlier = {"views": [{"name": "Slow", "query": "tag=slow"}], "first": None}
        await page.evaluate(f"localStorage.setItem('job-views:anne', JSON.stringify({json.dumps(earlier)}))")
        await page.goto("/console/jobs?status=error&sort=oldest")
        await expect(page.get_by_role("link", name="Slow")).to_have_attribute("href", "/console/jobs?tag=slow")
        assert await page.evaluate("localStorage.getItem('job-views:anne')") is None
        await page.get_by_role("button", name="Save this view…").press("Enter")
        await page.get_by_label("Name").fill("Failed first")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Share…").press("Enter")
        await page.get_by_label("Everybody who may use the console").check()
        link = await page.get_by_label("Link").input_value()
        await page.get_by_role("button", name="Done").press("Enter")
        await expect(page.get_by_text("Shared", exact=True)).to_be_visible()
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("bert").token)
        await tab.page.goto(link)
        assert tab.page.url == f"{locked.url}/console/jobs?status=error&sort=oldest"
        await expect(tab.page.get_by_role("link", name="Failed first")).to_have_count(0)
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("anne").token)
        await tab.page.goto("/console/schedules?q=x")
        await expect(tab.page.get_by_role("link", name="Failed first")).to_have_count(0)
        await tab.page.goto("/console/jobs?sort=newest")
        await expect(tab.page.get_by_role("link", name="Failed first")).to_be_visible()


async def test_columns_are_chosen_and_belong_to_a_saved_view(open_tab: OpenTab, locked: Console, axe: Axe) -> None:
    locked.job(JobStatus.FINISHED, user_id="anne")
    async with open_tab(locked.url) as tab:
        page = tab.page
        await tab.sign_in(locked.key("anne").token)
        await page.goto("/console/jobs")
        await page.get_by_text("Columns").first.click()
        await page.get_by_role("checkbox", name="Ended", exact=True).check()
        await page.wait_for_url("**columns=ended**")
        heading = page.get_by_role("columnheader", name="Ended")
        await expect(heading).to_be_visible()
        # the usual ones alone need no word in the address
        await page.get_by_role("checkbox", name="Ended", exact=True).uncheck()
        await page.wait_for_url(lambda url: "columns" not in url)
        await page.get_by_role("checkbox", name="Ended", exact=True).check()
        await page.get_by_label("Items", exact=True).uncheck()
        items = page.get_by_role("columnheader", name="Items")
        # what the heading's link asks for is known when the list has come again
        await expect(items).to_have_count(0)
        await heading.get_by_role("link").click()
        await expect(heading).to_have_attribute("aria-sort", "descending")
        await axe(tab)
        await page.get_by_role("button", name="Save this view…").press("Enter")
        await page.get_by_label("Name").fill("What is over")
        await page.keyboard.press("Enter")
        view = page.get_by_role("link", name="What is over")
        await expect(view).to_have_attribute("aria-current", "page")
        await page.goto("/console/jobs?sort=newest")
        await view.click()
        await expect(heading).to_have_attribute("aria-sort", "descending")
        await expect(items).to_have_count(0)


async def test_an_act_is_on_the_rows_that_are_ticked(tab: Tab, console: Console, axe: Axe) -> None:
    user, page = "ticks", tab.page
    made = [console.job(JobStatus.PENDING, user_id=user, age=60 * number) for number in range(3)]
    await page.goto(f"/console/jobs?user_id={user}")
    every = page.get_by_label("Select all on this page")
    await every.press("Space")
    await expect(page.get_by_text("3 selected:")).to_be_visible()
    await page.get_by_label(f"Select job {made[1].id[:8]}").press("Space")
    await expect(page.get_by_text("2 selected:")).to_be_visible()
    assert await every.evaluate("box => box.indeterminate")
    await axe(tab)
    await page.get_by_role("button", name="Cancel…").press("Enter")
    dialog = page.get_by_role("dialog", name="Cancel all selected jobs")
    await expect(dialog).to_contain_text("2 jobs selected.")
    await page.keyboard.press("Enter")
    await expect(dialog).to_contain_text("2 cancelled.")
    assert [console.jobs.get(job.id).status for job in made] == ["cancelled", "pending", "cancelled"]
    await page.keyboard.press("Escape")
    await expect(page.get_by_text("All 3 jobs:")).to_be_visible()
    await page.goto(f"/console/jobs?user_id={user}&status=pending")
    await expect(page.get_by_text("All matching:")).to_be_visible()


@in_full("web/console and web/test_bulk.py, and the list as it is filtered here")
async def test_a_filter_by_user_is_only_a_filter(tab: Tab, console: Console, axe: Axe) -> None:
    page = tab.page
    of_one, of_other = (console.job(JobStatus.FINISHED, user_id=user, tags=["users"]) for user in ("one", "other"))
    await page.goto("/console/jobs?tag=users")
    await expect(rows(page)).to_have_count(2)
    await page.get_by_label("User", exact=True).fill("one")
    await expect(rows(page)).to_have_count(1)
    await expect(rows(page)).to_have_attribute("data-job", of_one.id)
    await expect(page.get_by_text("Viewing as")).to_have_count(0)
    await axe(tab)
    # the filter that follows is not only of this user's jobs
    await page.get_by_label("User", exact=True).fill("")
    await expect(rows(page)).to_have_count(2)
    console.change(of_other, status="partial")
    await expect(rows(page).first.locator(".status")).to_have_text("partial")
    await rows(page).first.get_by_role("link", name="other").press("Enter")
    await expect(rows(page)).to_have_count(1)
    await page.wait_for_url("**user=other*")
    await page.keyboard.press("Control+k")
    await expect(page.locator("dialog[open]")).to_be_visible()
    await page.keyboard.type("view as other")
    await expect(page.get_by_role("option", name="View as other")).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Viewing as other.")).to_be_visible()
    await expect(page.get_by_role("link", name="Nodes")).to_have_count(0)


async def test_rows_follow_their_jobs_and_new_ones_wait_until_they_are_asked_for(tab: Tab, console: Console) -> None:
    user, page = "live", tab.page
    job = console.job(JobStatus.RUNNING, user_id=user)
    await page.goto(f"/console/jobs?user_id={user}")
    await expect(rows(page).locator(".status")).to_have_text("running")
    counted = progress_event(1, Progress(completed_pages=4321, items_count=99))
    pages = rows(page).locator('[data-field="completed_pages"]')
    # a node tells its progress each second: the first may be told before anybody listens
    while await pages.text_content() != "4,321":
        console.redis.publish(job_channel(job.id), counted)
        await page.wait_for_timeout(100)
    console.change(job, status="pending", waiting_reason="no_node")
    await expect(rows(page)).to_contain_text("waiting for an available node")
    console.change(job, status="partial", message="3 of 9 requests failed", finished_at=utc_now())
    await expect(rows(page).locator(".status")).to_have_text("partial")
    await expect(rows(page)).to_contain_text("3 of 9 requests failed")
    # it is asked of the API how long the job ran
    began = utc_now() - timedelta(seconds=90)
    console.change(job, status="cancelled", message="", started_at=began, finished_at=utc_now())
    await expect(rows(page).locator('[data-field="ran"]')).to_have_text("1 min 30 s")
    news = page.get_by_role("button", name="Show 1 new")
    new = console.job(JobStatus.PENDING, user_id=user, age=0)
    console.publisher.status(new)
    await expect(news).to_be_visible()
    await expect(rows(page)).to_have_count(1)
    await news.press("Enter")
    await expect(rows(page)).to_have_count(2)
    await expect(news).to_be_hidden()


async def test_all_that_match_when_they_are_counted_are_cancelled(tab: Tab, console: Console, axe: Axe) -> None:
    user, page = "bulk", tab.page
    made = [console.job(JobStatus.PENDING, user_id=user, spider="seo") for _ in range(3)]
    other = console.job(JobStatus.PENDING, user_id=user, spider="jobs")
    await page.goto(f"/console/jobs?user_id={user}&spider=seo")
    await page.get_by_role("button", name="Cancel…").press("Enter")
    dialog = page.get_by_role("dialog", name="Cancel all matching jobs")
    await expect(dialog).to_contain_text("3 jobs match: user bulk, spider seo")
    await axe(tab)
    # one more comes before the answer, and is left alone
    new = console.job(JobStatus.PENDING, user_id=user, spider="seo", age=-60)
    await page.keyboard.press("Enter")
    await expect(dialog).to_contain_text("3 cancelled.")
    # the list behind the dialog is read anew at once
    await expect(rows(page).locator(".status")).to_have_text(["pending", *["cancelled"] * 3])
    await expect(dialog).to_be_visible()
    await page.keyboard.press("Escape")
    assert {console.jobs.get(job.id).status for job in made} == {JobStatus.CANCELLED}
    assert {console.jobs.get(job.id).status for job in (other, new)} == {JobStatus.PENDING}


@in_full("web/console and web/test_bulk.py, and the list as it is filtered here")
async def test_an_act_on_all_says_how_many_it_leaves_out_and_why(tab: Tab, console: Console) -> None:
    user, page = "left-out", tab.page
    for status in (JobStatus.FINISHED, JobStatus.ERROR, JobStatus.RUNNING, JobStatus.PENDING):
        console.job(status, user_id=user)
    console.job(JobStatus.RUNNING, user_id=user, cancel_requested_at=utc_now())
    console.job(JobStatus.FINISHED, user_id=user, settled=False)
    for statuses, act, words in (
        ([], "Delete…", "2 of 6 jobs can be deleted: 3 have not ended, 1 has just ended. Filter: user"),
        ([], "Retry…", "3 of 6 jobs can be retried: 3 have not ended. Filter"),
        ([], "Cancel…", "2 of 6 jobs can be cancelled: 3 have ended, 1 is already being cancelled. Filter"),
        (["error", "pending"], "Delete…", "1 of 2 jobs can be deleted: 1 has not ended. Filter"),
        (["running"], "Retry…", "None of the matching jobs can be retried: 2 have not ended."),
        (["error"], "Retry…", "1 job matches: user left-out, status error."),
    ):
        await page.goto(f"/console/jobs?user_id={user}{''.join(f'&status={one}' for one in statuses)}")
        await page.get_by_role("button", name=act).press("Enter")
        await expect(page.get_by_role("dialog")).to_contain_text(words)


@in_full("web/console and web/test_bulk.py, and the list as it is filtered here")
async def test_dragging_over_a_time_asks_for_the_jobs_that_started_then(tab: Tab, console: Console, axe: Axe) -> None:
    user, page = "brush", tab.page
    old, new = (console.job(JobStatus.FINISHED, user_id=user, age=age) for age in (36_000, 600))
    await page.goto(f"/console/jobs?user_id={user}")
    picture = page.get_by_role("img", name="Start times and durations of 2 jobs")
    box = await picture.bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + box["width"] / 2, middle)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] - 2, middle)
    await page.mouse.up()
    await expect(rows(page)).to_have_count(1)
    await expect(rows(page)).to_have_attribute("data-job", new.id)
    await axe(tab)
    # two fields say the same, for those who use no mouse
    until = page.get_by_label("Started before")
    await page.get_by_label("Started after").fill("")
    local = "([moment]) => new Date(moment - new Date().getTimezoneOffset() * 60000).toISOString().slice(0, 19)"
    await until.fill(await page.evaluate(local, [(utc_now() - timedelta(hours=2)).timestamp() * 1000]))
    await expect(rows(page)).to_have_attribute("data-job", old.id)
    assert re.search(r"started_until=20\d\d-", page.url)


@in_full("web/console and web/test_bulk.py, and the list as it is filtered here")
async def test_a_filter_is_not_lost_that_is_changed_while_a_list_is_read(tab: Tab, console: Console) -> None:
    user, page = "hasty", tab.page
    wanted = console.job(JobStatus.FINISHED, user_id=user, tags=["wanted"])
    console.job(JobStatus.FINISHED, user_id=user, tags=["other"])
    await page.goto(f"/console/jobs?user_id={user}")
    await expect(rows(page)).to_have_count(2)
    asked, answer = asyncio.Event(), asyncio.Event()

    async def held(route: Route) -> None:
        asked.set()
        await answer.wait()
        await route.continue_()

    await page.route("**/console/jobs?*q=job*", held)
    await page.get_by_label("Search", exact=True).fill("job")
    await asked.wait()
    async with page.expect_request("**/console/jobs?*q=wanted*"):
        await page.get_by_label("Search", exact=True).fill("wanted")
        # whether it is asked for at once or waits: the answer before it comes late
        await page.wait_for_timeout(1000)
        answer.set()
    await expect(rows(page)).to_have_count(1)
    await expect(rows(page)).to_have_attribute("data-job", wanted.id)


@in_full("web/console and web/test_bulk.py, and the list as it is filtered here")
async def test_dead_letters_are_requeued_and_dismissed(tab: Tab, console: Console, axe: Axe) -> None:
    user, page = "letters", tab.page
    console.spider()
    letters = [console.job(JobStatus.ERROR, user_id=user, dead=True, message=HOSTILE) for _ in range(3)]
    await page.goto(f"/console/dead-letters?user_id={user}")
    await expect(page.get_by_text("3 dead letters")).to_be_visible()
    await axe(tab)
    await page.get_by_role("button", name=f"Requeue job {letters[0].id[:8]}").press("Enter")
    await expect(page.get_by_text("2 dead letters")).to_be_visible()
    await page.get_by_role("button", name="Dismiss…").press("Enter")
    await expect(page.get_by_role("button", name="Dismiss 2 jobs")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_contain_text("2 dismissed.")
    await page.keyboard.press("Escape")
    await expect(page.get_by_text("No dead letters")).to_be_visible()
    assert not any(console.jobs.get(letter.id).dead for letter in letters)


@in_full("web/console and web/test_bulk.py, and the list as it is filtered here")
async def test_on_a_phone_rows_are_cards_and_nothing_of_another_user_is_there(
    open_tab: OpenTab, locked: Console, axe: Axe
) -> None:
    locked.job(JobStatus.ERROR, user_id="bert", message="berts-secret", dead=True)
    own = locked.job(JobStatus.RUNNING, user_id="anne", start_urls=(f"http://site.example/{'x' * 300}",))
    async with open_tab(locked.url, **PHONE) as tab:
        await tab.sign_in(locked.key("anne", Scope.CRAWL).token)
        await tab.page.goto("/console/jobs")
        await expect(rows(tab.page)).to_have_attribute("data-job", own.id)
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await axe(tab)
        await tab.page.goto("/console/jobs?q=berts-secret")
        await expect(tab.page.get_by_text("No matching jobs")).to_be_visible()
        await tab.page.goto("/console/dead-letters")
        await expect(tab.page.get_by_text("No dead letters")).to_be_visible()
        await tab.page.goto("/console/jobs?user_id=bert")
        await expect(tab.page.get_by_role("alert")).to_contain_text("may not act for 'bert'")
        tab.expect_complaint("403")


@in_full("web/console and web/test_bulk.py, and the list as it is filtered here")
async def test_filters_suggest_all_spiders_and_sites_and_not_those_of_the_list_alone(
    tab: Tab, console: Console
) -> None:
    SpiderStore(console.database).publish("n1", [SpiderInfo(project="default", name="never-run", params_schema={})])
    site = {"name": "never-crawled", "spider": "never-run", "search_url": "https://a.example/"}
    console.http.post("/sites", json=site).raise_for_status()
    console.job(user_id="suggested")
    await tab.page.goto("/console/jobs?user_id=suggested")
    await expect(rows(tab.page)).to_have_count(1)
    for names, known in (("spiders", "never-run"), ("sites", "never-crawled")):
        await expect(tab.page.locator(f"#{names} option[value='{known}']")).to_have_count(1)
