"""The tab with what a crawl asked for: the slowest first, filters as links, and what leads where."""

from __future__ import annotations

import re
from typing import Any

import pytest
from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from forms import in_full
from playwright.async_api import Page, Route, expect

from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.jobs.job import Job, JobStatus

SITE = "http://site.example"
TIMES = {"at": 1_811_840_401_250, "attempt": 1}
LIST = f"{SITE}/list"
#: Pixels between the links that filter and the line below them.
GAP = """(() => {
  const filters = document.querySelector('nav[aria-label="Filter"]');
  const last = filters.lastElementChild.getBoundingClientRect();
  return filters.nextElementSibling.getBoundingClientRect().top - last.bottom;
})()"""
REFUSED = "the connection was refused"


def requests(count: int) -> list[dict[str, Any]]:
    pages = [
        {"url": f"{SITE}/p/{n}", "status": 200, "ms": 10 + n, "bytes": 9000 - n, "parent": LIST} for n in range(count)
    ]
    odd = [
        {"url": f"{SITE}/slow", "status": 200, "ms": 7300, "bytes": 1200, "parent": LIST},
        {"url": f"{SITE}/gone", "status": 404, "ms": 12, "bytes": 90, "parent": LIST},
        {
            "url": f"{SITE}/refused",
            "failed": True,
            "reason": "the connection was refused",
            "retries": 2,
            "ms": 31_000,
        },
        {"url": f"{SITE}/old", "status": 200, "ms": 40, "bytes": 500, "redirected_to": f"{SITE}/new"},
        {"url": f"{SITE}/kept", "status": 200, "bytes": 700, "cached": True},
        {"url": f"javascript:alert(1)//{HOSTILE}", "parent": HOSTILE, "reason": HOSTILE, "ms": 6000},
    ]
    return [{**TIMES, **one} for one in (*pages, *odd)]


@pytest.fixture(scope="module")
def job(console: Console) -> Job:
    job = console.job(JobStatus.PARTIAL)
    console.requests(job, requests(120))
    return job


def rows(page: Page) -> Any:
    return page.locator("data-table tbody tr")


async def test_pictures_lead_to_requests_and_a_request_to_its_lines_in_the_log(
    tab: Tab, console: Console, axe: Axe
) -> None:
    page, job = tab.page, console.job(JobStatus.PARTIAL)
    console.requests(job, requests(20))
    console.log(job, [f"2027-06-01 09:00:01 [scrapy.core.engine] DEBUG: Crawled (200) <GET {SITE}/slow>"])
    await page.goto(f"/console/jobs/{job.id}/requests")
    durations = page.get_by_role("group", name=re.compile("^Requests by duration, highest"))
    await durations.locator("g", has_text="5000 to 10000 ms").locator("a").last.click()
    await page.wait_for_url("**slow_ms=5000**")
    await expect(rows(page)).to_have_count(3)
    # the tab may be higher than what is left of the table, but its parts stay together
    await page.goto(f"/console/jobs/{job.id}/requests?failed=true#tab")
    await expect(rows(page)).to_have_count(1)
    assert await page.evaluate(GAP) < 20
    await page.go_back()
    await rows(page).filter(has_text="/slow").get_by_role("button").click()
    await axe(tab)
    await page.get_by_role("link", name="Log lines").click()
    await expect(page.get_by_role("searchbox", name="Search the log")).to_have_value(f"{SITE}/slow")
    await expect(page.get_by_role("group", name="Lines of the log over time, up to 1")).to_be_visible()
    await page.get_by_role("link", name="Request", exact=True).click()
    await expect(rows(page)).to_have_count(1)
    await expect(rows(page).first).to_contain_text("/slow")


async def test_the_slowest_page_is_found_by_keyboard(tab: Tab, job: Job, axe: Axe) -> None:
    page = tab.page
    await page.goto(f"/console/jobs/{job.id}")
    await page.get_by_role("link", name="Requests").press("Enter")
    await expect(rows(page).first).to_contain_text("/refused")
    await expect(rows(page).first).to_contain_text("31,000 ms")
    await expect(rows(page).nth(1)).to_contain_text("/slow")
    await expect(rows(page).nth(1).get_by_role("link", name=LIST)).to_have_attribute("href", LIST)
    await axe(tab)
    slow = page.get_by_role("link", name="Over 5 s")
    await slow.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="Over 5 s")).to_have_attribute("aria-current", "page")
    await expect(rows(page)).to_have_count(3)
    await page.get_by_role("searchbox", name="Search URLs").fill("slow")
    await expect(rows(page)).to_have_count(1)
    # another filter keeps what was searched for, once the page was made anew
    await page.reload()
    await expect(rows(page)).to_have_count(1)
    await page.get_by_role("link", name="Failed", exact=True).click()
    await expect(page.get_by_text("None found")).to_be_visible()
    await page.get_by_role("searchbox", name="Search URLs").fill("")
    await expect(rows(page)).to_have_count(1)
    await expect(rows(page).first).to_contain_text(REFUSED)


@in_full("web/test_requests.py, and the slowest page here")
async def test_each_filter_leads_to_its_requests(tab: Tab, job: Job) -> None:
    page = tab.page
    await page.goto(f"/console/jobs/{job.id}/requests?sort=-bytes")
    await expect(rows(page).first).to_contain_text("9.0 kB")
    for name, url in (("4xx", "/gone"), ("Redirected", "/new"), ("Cached", "/kept")):
        await page.get_by_role("navigation", name="Filter").get_by_role("link", name=name).click()
        await expect(rows(page)).to_have_count(1)
        await expect(rows(page).first).to_contain_text(url)
    await page.get_by_role("link", name="5xx").click()
    await expect(page.get_by_text("No matching requests")).to_be_visible()
    await page.goto(f"/console/jobs/{job.id}/requests?status=tall")
    await expect(page.get_by_role("alert")).to_contain_text("status")


#: Where the page is when it was drawn twice.
WHERE = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(scrollY))))"


@in_full("web/test_requests.py, and the slowest page here")
async def test_a_filter_and_an_order_keep_the_place_on_the_page(tab: Tab, job: Job) -> None:
    page = tab.page
    await page.goto(f"/console/jobs/{job.id}/requests#tab")
    await expect(rows(page).first).to_contain_text("/refused")
    await page.get_by_role("link", name="4xx").click()
    await expect(rows(page)).to_have_count(1)
    assert "status=4xx" in page.url
    assert abs(await page.locator("#tab").evaluate("tab => tab.getBoundingClientRect().top")) < 20
    # an order also where the address does not lead to the tabs
    await page.goto(f"/console/jobs/{job.id}/requests")
    await expect(rows(page).first).to_contain_text("/refused")
    before = await page.evaluate("() => { scrollTo(0, 9999); return scrollY; }")
    assert before > 100
    places = []

    async def look(route: Route) -> None:
        places.append(await page.evaluate(WHERE))
        await route.continue_()

    await page.route("**/requests?*sort=-bytes*", look)
    await page.get_by_role("button", name="Size").click()
    await expect(rows(page).first).to_contain_text("9.0 kB")
    await expect(page.get_by_role("button", name="Size")).to_be_focused()
    assert "sort=-bytes" in page.url
    assert [*places, await page.evaluate("scrollY")] == [before, before]


@in_full("web/test_requests.py, and the slowest page here")
async def test_the_choice_of_columns_stays_on_the_screen(tab: Tab, job: Job) -> None:
    page = tab.page
    await page.goto(f"/console/jobs/{job.id}/requests")
    await expect(rows(page).first).to_contain_text("/refused")
    columns = page.locator("summary", has_text="Columns").first
    for place in ("end", "start"):
        await columns.evaluate("(button, block) => button.scrollIntoView({ block })", place)
        await columns.press("Enter")
        box = page.locator("fieldset.panel")
        await expect(box.get_by_label("Retries")).to_be_visible()
        edges = await box.bounding_box()
        assert edges
        assert 0 <= edges["y"] <= edges["y"] + edges["height"] <= 800, place
        await page.keyboard.press("Escape")
        await expect(box).to_be_hidden()


@in_full("web/test_requests.py, and the slowest page here")
async def test_a_request_in_full_has_its_time_as_the_table_has(tab: Tab, job: Job) -> None:
    page = tab.page
    await page.goto(f"/console/jobs/{job.id}/requests")
    await page.get_by_role("button", name="Record 1 in full").press("Enter")
    time = page.get_by_role("dialog", name="Record 1").locator("time")
    await expect(time).to_have_attribute("datetime", re.compile(r"Z$"))
    # in the browser's zone
    await expect(time).to_have_attribute("title", re.compile(r"^2027-06-01 \d\d:\d\d:01 (?!Z)"))


async def test_what_a_site_calls_itself_changes_nothing_but_itself(
    open_tab: OpenTab, console: Console, job: Job
) -> None:
    async with open_tab(console.url, **PHONE) as tab:
        page = tab.page
        await page.goto(f"/console/jobs/{job.id}/requests?slow_ms=6000")
        hostile = rows(page).filter(has_text="javascript:")
        await expect(hostile).to_contain_text("\\u202e")
        assert await hostile.get_by_role("link").count() == 0
        assert await page.locator("data-table b, data-table script").count() == 0
        link = rows(page).first.get_by_role("link").first
        assert "noreferrer" in str(await link.get_attribute("rel"))
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def _of(*times: int) -> list[dict[str, Any]]:
    return [{**TIMES, "url": f"{SITE}/took/{ms}", "status": 200, "ms": ms} for ms in times]


async def _more_come_by_themselves(page: Page, console: Console, job: Job) -> None:
    end = console.requests(job, _of(50))
    await expect(rows(page)).to_have_count(1)
    # a slower one would push the others down: not under the mouse
    await rows(page).first.hover()
    end = console.requests(job, _of(900, 20), start=end)
    await expect(page.get_by_role("button", name="Show new records")).to_be_visible()
    await expect(rows(page)).to_have_count(1)
    await page.mouse.move(1, 1)
    await expect(rows(page)).to_have_count(3)
    await expect(rows(page).first).to_contain_text("900 ms")
    await expect(page.get_by_role("button", name="Show new records")).to_be_hidden()
    # what came at its end is shown too, and then nobody looks any more
    console.requests(job, _of(1000), start=end)
    console.change(job, status="finished", finished_at=utc_now(), settled=True)
    await expect(page.get_by_text("New requests appear by themselves")).to_be_hidden()
    await expect(rows(page)).to_have_count(4)
    await expect(page.locator("data-table[live]")).to_have_count(0)


@in_full("web/test_requests.py, and the slowest page here")
async def test_nothing_says_why_and_anothers_is_not_there(
    open_tab: OpenTab, console: Console, locked: Console
) -> None:
    async with open_tab(console.url) as tab:
        job = console.job(JobStatus.RUNNING)
        await tab.page.goto(f"/console/jobs/{job.id}/requests")
        await expect(tab.page.get_by_text("No requests yet")).to_be_visible()
        await expect(tab.page.get_by_text("New requests appear by themselves")).to_be_visible()
        await _more_come_by_themselves(tab.page, console, job)
    theirs = locked.job(user_id="anne")
    locked.requests(theirs, requests(1))
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("bert", Scope.READ).token)
        answer = await tab.page.goto(f"/console/jobs/{theirs.id}/requests")
        assert answer is not None
        assert answer.status == 404
        tab.expect_complaint("404")
