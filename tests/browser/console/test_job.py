"""The page of one job."""

from __future__ import annotations

from browser.console.platform import HOSTILE, Console
from browser.console.tabs import Axe, Tab
from playwright.async_api import expect

from gateway.jobs.job import JobStatus


async def test_a_job_leads_to_its_log_while_it_runs_and_to_its_items_afterwards(tab: Tab, console: Console) -> None:
    running, ended = console.job(JobStatus.RUNNING), console.job(JobStatus.FINISHED)
    for job, name in ((running, "Log"), (ended, "Items")):
        await tab.page.goto(f"/console/jobs/{job.id}")
        parts = tab.page.get_by_role("navigation", name="Parts of the job")
        await expect(parts.get_by_role("link", name=name)).to_have_attribute("aria-current", "page")


async def test_what_a_spider_has_named_changes_nothing_but_itself(tab: Tab, console: Console, axe: Axe) -> None:
    job = console.job(JobStatus.ERROR, spider=HOSTILE, message=HOSTILE, params={HOSTILE: HOSTILE}, project=HOSTILE)
    await tab.page.goto(f"/console/jobs/{job.id}/runs")
    await expect(tab.page.get_by_role("heading", level=1)).to_contain_text("<script>alert(1)</script>")
    await axe(tab)
