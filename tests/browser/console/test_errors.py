"""Errors across runs: found, followed to the line and the page, resolved, and back again."""

from __future__ import annotations

from datetime import timedelta

from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab
from ended_runs import add_errors, found_error
from playwright.async_api import Page, expect

from gateway.clock import utc_now
from gateway.contract.outbox import AttemptId
from gateway.error_groups.attempt_errors import AttemptErrorStore, RunErrors
from gateway.jobs.job import Job, JobStatus

HEAD = "2027-06-01 09:00:01 [scrapy.core.scraper] ERROR: Spider error processing <GET https://shop.example/sale/7>"
LOG = [
    *(f"2027-06-01 09:00:00 [scrapy.core.engine] INFO: line {number}" for number in range(300)),
    HEAD,
    *(f"2027-06-01 09:00:02 [scrapy.core.engine] INFO: line {number}" for number in range(300, 600)),
]
START = sum(len(f"{line}\n") for line in LOG[:300])
EUROS = "could not convert string to float: '€ 9,50'"


def run(console: Console, *texts: str, hours: float = 0, **fields: str) -> Job:
    spec = {"project": "shop", "spider": "prices", "start_urls": ("https://shop.example/",), **fields}
    job = console.job(age=hours * 3600 + 120, ran=60, **spec)
    add_errors(console.database, job, *(found_error(text, 12, log_start=START) for text in texts))
    return job


async def test_an_error_leads_to_its_line_and_its_page_and_is_resolved(
    open_tab: OpenTab, console: Console, axe: Axe
) -> None:
    async with open_tab(console.url) as tab:
        page = tab.page
        await page.goto("/console/errors")
        await expect(page.get_by_text("No errors yet")).to_be_visible()
        run(console, hours=72)
        first = run(console, EUROS, hours=48)
        last = run(console, EUROS, f"no stock {HOSTILE}", hours=24)
        console.log(last, LOG)
        run(console, "not of this spider", spider="other")
        await page.reload()
        await axe(tab)
        await page.get_by_label("Spider").fill("prices")
        await page.get_by_role("button", name="Filter").click()
        rows = page.get_by_role("row").filter(has=page.get_by_role("cell"))
        await expect(rows).to_have_count(2)
        row = rows.filter(has_text=f"ValueError: {EUROS}")
        await expect(row).to_contain_text("shop/spider.py:parse_price")
        await expect(row.get_by_role("cell").nth(3)).to_have_text("24")
        line = row.get_by_role("link", name="log line")
        await expect(line).to_have_attribute("href", f"/console/jobs/{last.id}/log#1-{START + 1}")
        await row.get_by_role("link", name="ValueError").click()
        await axe(tab)
        await expect(page.locator("#example")).to_contain_text(
            "Grouped as: could not convert string to float: <text>"
        )
        await expect(page.get_by_role("img", name="2 of the last 3 runs had this error")).to_be_visible()
        await expect(page.locator("#runs").get_by_role("row").nth(2)).to_contain_text("new")
        await page.get_by_role("link", name="Log line").click()
        await page.wait_for_url(f"**/console/jobs/{last.id}/log#1-{START + 1}")
        await expect(page.locator(".log-row[aria-current]")).to_contain_text("sale/7")
        await page.go_back()
        await page.get_by_role("button", name="Resolve").first.click()
        await expect(page.get_by_text("Resolved now")).to_be_visible()
        await expect(page.locator(".head")).to_contain_text("resolved")
        await page.get_by_role("button", name="Reopen").click()
        await expect(page.locator(".head")).to_contain_text("open")
        assert first.id in await page.locator(".stat", has_text="First seen").inner_html()


async def test_what_was_resolved_is_back_and_said_to_be_in_a_version(
    open_tab: OpenTab, console: Console, axe: Axe
) -> None:
    run(console, "no colour", spider="colours", hours=5)
    async with open_tab(console.url) as tab:
        page = tab.page
        await page.goto("/console/errors?spider=colours")
        await page.get_by_role("link", name="ValueError: no colour").click()
        await page.get_by_label("Version with the fix").fill("2.1")
        await page.locator("#resolve").get_by_role("button").click()
        await expect(page.get_by_text("in version 2.1")).to_be_visible()
        soon = utc_now() + timedelta(seconds=2)
        again = console.job(age=-2, ran=1, project="shop", spider="colours", start_urls=("https://shop.example/",))
        assert again.started_at
        assert again.started_at >= soon - timedelta(seconds=1)
        add_errors(console.database, again, found_error("no colour"))
        await page.reload()
        await expect(page.locator(".note")).to_contain_text("Back")
        await axe(tab)
        await page.goto(f"/console/jobs/{again.id}/errors")
        await expect(page.get_by_role("link", name="1 new kind of error")).to_be_visible()
        await expect(page.locator("#tab .badge")).to_have_text("back")
        await axe(tab)
        await page.get_by_role("link", name="ValueError: no colour").click()
        await page.get_by_role("button", name="Ignore").click()
        await expect(page.locator(".head")).to_contain_text("ignored")


async def test_the_last_night_shows_old_errors_that_it_had_and_no_others(
    open_tab: OpenTab, console: Console, axe: Axe
) -> None:
    run(console, "no colour", spider="nights", hours=400)
    run(console, "no colour", spider="nights", hours=0)
    run(console, "no price", spider="nights", hours=300)
    run(console, "no size", spider="nights", hours=0.1)
    async with open_tab(console.url) as tab:
        page = tab.page
        await page.goto("/console/errors?spider=nights")
        await expect(page.get_by_role("link", name="ValueError: no")).to_have_count(3)
        await page.get_by_label("Last seen").select_option("Since last night (18:00 UTC)")
        await page.get_by_role("button", name="Filter").click()
        await expect(page.get_by_role("link", name="ValueError: no")).to_have_text(
            ["ValueError: no size", "ValueError: no colour"]
        )
        await expect(page.get_by_role("columnheader", name="First in this time")).to_be_visible()
        await page.get_by_role("link", name="Last seen").click()
        await expect(page.get_by_role("link", name="ValueError: no")).to_have_text(
            ["ValueError: no colour", "ValueError: no size"]
        )
        await page.go_back()
        await expect(page.get_by_role("link", name="ValueError: no")).to_have_text(
            ["ValueError: no size", "ValueError: no colour"]
        )
        await axe(tab)


async def test_the_page_of_a_spider_and_of_a_job_name_their_errors(
    open_tab: OpenTab, console: Console, axe: Axe
) -> None:
    run(console, "no size", spider="sizes", hours=30)
    job = run(console, "no size", f"no weight {HOSTILE}", spider="sizes")
    running = console.job(JobStatus.RUNNING)
    failed = console.job(JobStatus.RUNNING)
    AttemptErrorStore(console.database).save(AttemptId(failed.id, 1), _errors("no size"))
    async with open_tab(console.url, **PHONE) as tab:
        page = tab.page
        await page.goto("/console/spiders/shop/sizes")
        await expect(page.locator("#errors").get_by_role("link", name="ValueError: no size")).to_be_visible()
        await axe(tab)
        await page.goto(f"/console/jobs/{job.id}/errors")
        for error, mark in (("no size", "known"), ("no weight", "new")):
            await expect(page.locator("#tab").get_by_role("row").filter(has_text=error)).to_contain_text(mark)
        await axe(tab)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.goto(f"/console/jobs/{running.id}/errors")
        await expect(page.get_by_text("No errors yet")).to_be_visible()
        # it ends while somebody looks
        AttemptErrorStore(console.database).save(AttemptId(running.id, 1), _errors("no size"))
        console.change(running, status=JobStatus.FINISHED, finished_at=utc_now(), settled=True)
        await expect(page.locator("#tab")).to_contain_text("no size")
        await page.goto(f"/console/jobs/{failed.id}/errors")
        await expect(page.locator("#tab")).to_contain_text("no size")
        for address in ("/console/errors", await _address(tab.page)):
            await page.goto(address)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def _errors(text: str) -> RunErrors:
    return RunErrors([found_error(text)])


async def _address(page: Page) -> str:
    await page.goto("/console/errors?q=no+size")
    return str(await page.get_by_role("link", name="no size").first.get_attribute("href"))
