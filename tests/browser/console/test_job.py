"""The page of one job."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from forms import in_full
from playwright.async_api import expect

from gateway.clock import utc_now
from gateway.contract.outbox import AttemptId
from gateway.contract.records import Progress
from gateway.jobs.job import Job, JobStatus, PastStep, StepKind, WaitingReason
from gateway.jobs.progress import Point, ProgressStore
from gateway.logs.store import LogStream

URL = "http://site.example/"
#: The page has nothing to scroll sideways.
FITS = "document.documentElement.scrollWidth <= innerWidth"


def curve(console: Console, job: Job) -> None:
    """Of a crawl that works off what it has found: two pages a second."""
    store, began = ProgressStore(console.database), utc_now() - timedelta(seconds=60)
    series = store.get(AttemptId(job.id, 1))
    for second in range(0, 60, 3):
        series.add(Point(began + timedelta(seconds=second), 400, 2 * second, second, answered_2xx=2 * second))
    store.save(series)


def waited(reason: WaitingReason, seconds: int) -> Any:
    return [PastStep(at=utc_now() - timedelta(seconds=seconds), kind=StepKind.WAITS, reason=reason)]


@in_full("web/console, and a job that is watched here")
async def test_a_job_leads_to_its_log_while_it_runs_and_to_its_items_afterwards(tab: Tab, console: Console) -> None:
    running, ended = console.job(JobStatus.RUNNING), console.job(JobStatus.FINISHED)
    for job, name in ((running, "Log"), (ended, "Items")):
        await tab.page.goto(f"/console/jobs/{job.id}")
        parts = tab.page.get_by_role("navigation", name="Job details")
        await expect(parts.get_by_role("link", name=name)).to_have_attribute("aria-current", "page")


async def test_a_running_job_is_watched_and_cancelled_by_keyboard(tab: Tab, console: Console, axe: Axe) -> None:
    job = console.job(JobStatus.RUNNING, age=60, progress={"completed_pages": 118})
    curve(console, job)
    await tab.page.goto(f"/console/jobs/{job.id}/runs")
    page = tab.page
    # the curves, value by value, and as a table
    chart = page.get_by_role("slider", name="Requests, value by value")
    await expect(chart).to_have_attribute("aria-valuenow", "19")
    await chart.press("Home")
    await expect(chart).to_have_attribute("aria-valuetext", re.compile("queued 400, done 0$"))
    await chart.press("ArrowRight")
    await page.get_by_role("button", name="Requests as a table").press("Enter")
    await expect(page.get_by_role("region", name="Requests, as a table").get_by_role("row")).to_have_count(21)
    await expect(page.locator("#job-estimate")).to_contain_text("when the queue is empty")
    await axe(tab)
    # what happens shows by itself
    figures = page.locator("#job-state .stats")
    await expect(figures).to_contain_text("118")
    console.change(job, **{"progress.completed_pages": 1234})
    LogStream(console.redis, 60).publish_progress(AttemptId(job.id, 1), Progress(completed_pages=1234))
    await expect(figures).to_contain_text("1,234")
    await page.get_by_role("button", name="Cancel").press("Enter")
    await page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).last.press("Enter")
    await expect(page.get_by_text("cancel requested", exact=True)).to_be_visible()
    await expect(page.get_by_role("list", name="Timeline")).to_contain_text("Cancel requested")
    console.change(job, status="cancelled", finished_at=utc_now(), settled=True, message="cancelled on request")
    await expect(page.get_by_role("button", name="Delete")).to_be_visible()
    await expect(page.locator("#job-status")).to_have_text("cancelled")
    # what it has left behind waits no more
    await chart.press("End")
    await expect(chart).to_have_attribute("aria-valuetext", re.compile("queued 0, done "))


async def test_a_failed_job_says_what_to_do_and_runs_again(tab: Tab, console: Console, axe: Axe) -> None:
    console.spider()
    message = f"12 of 14 requests failed (the first: {URL}: HTTP 403 Forbidden)"
    given = {"start_urls": (URL,), "params": {"fields": {"title": "h1"}}, "fingerprint": "the same"}
    before = console.job(JobStatus.FINISHED, age=9000, **given)
    job = console.job(JobStatus.ERROR, reason="site_refuses", message=message, **given)
    await tab.page.goto(f"/console/jobs/{job.id}/runs")
    page = tab.page
    advice = page.get_by_role("region", name="Next steps")
    await expect(advice).to_contain_text("The site blocks the crawler")
    await expect(advice.get_by_role("link").first).to_have_attribute(
        "href", f"/console/jobs/{job.id}/requests?failed=true#tab"
    )
    await page.locator("#job-facts > summary").press("Enter")
    await expect(page.get_by_text('"title": "h1"')).to_be_visible()
    runs = page.get_by_role("region", name="Runs of the same request").get_by_role("row")
    await expect(runs).to_have_count(3)
    await expect(runs.nth(2).get_by_role("link").first).to_have_attribute("href", f"/console/jobs/{before.id}/runs")
    await axe(tab)
    again = page.get_by_role("link", name="Edit and rerun")
    await expect(again).to_have_attribute("href", f"/console/crawl?from={job.id}")
    await page.get_by_role("button", name="Retry").press("Enter")
    await page.wait_for_url(lambda url: "/console/jobs/" in url and job.id not in url)
    await expect(page.get_by_role("link", name="retry of")).to_be_visible()


@in_full("web/console, and a job that is watched here")
async def test_a_waiting_job_says_why_and_since_when(open_tab: OpenTab, console: Console, axe: Axe) -> None:
    job = console.job(JobStatus.PENDING, age=95, waiting_reason="no_node", history=waited(WaitingReason.NO_NODE, 90))
    async with open_tab(console.url, **PHONE) as tab:
        await tab.page.goto(f"/console/jobs/{job.id}")
        await expect(tab.page.get_by_role("region", name="Next steps")).to_contain_text("No node is available.")
        await tab.page.get_by_text("Timeline and charts").press("Enter")
        line = tab.page.get_by_role("list", name="Timeline")
        await expect(line).to_contain_text("Waiting for an available node 1 min")
        assert await tab.page.evaluate(FITS)
        await axe(tab)


@in_full("web/console, and a job that is watched here")
async def test_what_a_spider_has_named_changes_nothing_but_itself(
    open_tab: OpenTab, console: Console, axe: Axe
) -> None:
    job = console.job(JobStatus.ERROR, spider=HOSTILE, message=HOSTILE, params={HOSTILE: HOSTILE}, project=HOSTILE)
    async with open_tab(console.url, **PHONE) as tab:
        await tab.page.goto(f"/console/jobs/{job.id}/runs")
        await expect(tab.page.get_by_role("heading", level=1)).to_contain_text("<script>alert(1)</script>")
        await tab.page.get_by_text("Details and parameters").click()
        assert await tab.page.evaluate(FITS)
        await axe(tab)


@in_full("web/console, and a job that is watched here")
async def test_the_advice_leads_to_the_first_error_of_the_log(tab: Tab, console: Console) -> None:
    job = console.job(JobStatus.ERROR, reason="spider_failed", message="1 of 1 requests failed")
    lines = [f"2027-06-01 09:00:01 [seo] INFO: line {number}" for number in range(300)]
    console.log(job, [*lines, "2027-06-01 09:00:02 [scrapy] ERROR: no price here", *lines])
    await tab.page.goto(f"/console/jobs/{job.id}/runs")
    await tab.page.get_by_role("link", name="Go to the first error in the log").press("Enter")
    await expect(tab.page.locator('log-view [aria-current="true"]')).to_contain_text("no price here")
