"""Two runs side by side: what was asked for, what came of it, and which field has gone."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from browser.console.platform import Console
from browser.console.tabs import PHONE, Axe, OpenTab
from jobs import make_job
from playwright.async_api import expect

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.items.items import Item
from gateway.jobs.job import Attempt, JobStatus


def run(console: Console, status: JobStatus, stats: dict[str, Any], items: list[dict[str, Any]], **spec: Any) -> str:
    now, counts = utc_now(), Progress(completed_pages=9, items_count=len(items))
    report = SpiderReport(finish_reason="finished", progress=counts, stats=stats, ended_at=now)
    end = ExitReport(attempt=1, exit_code=0, ended_at=now, report=report)
    attempt = Attempt(attempt=1, node="n1", dispatched_at=now, started_at=now, ended_at=now, exit=end, status=status)
    given = {"spider": "prices", "project": "shop", "start_urls": ("http://shop.example/",), **spec}
    over = {"status": status, "attempt": 1, "attempts": {"1": attempt}, "settled": True, "live_key": None}
    age = timedelta(days=status is JobStatus.FINISHED)
    over |= {"created_at": now - age, "message": "some pages failed with status 503, " * 20}
    job = make_job(spec=CrawlSpec(**given), started_at=now, finished_at=now, progress=counts, **over)
    console.jobs.insert(job)
    console.items.insert([Item(job.id, 1, number, item) for number, item in enumerate(items, 1)])
    return job.id


async def test_two_runs_are_compared(open_tab: OpenTab, console: Console, axe: Axe) -> None:
    good = [{"url": f"http://shop.example/{n}", "price": 9.5} for n in range(4)]
    bad = [{"url": f"http://shop.example/{n}", "price": None} for n in range(4)]
    ok, broken = {"downloader/response_status_count/200": 9}, {"downloader/response_status_count/503": 3}
    before = run(console, JobStatus.FINISHED, ok, good, version="1.0", params={"shelf": "new"})
    now = run(console, JobStatus.PARTIAL, broken, bad, version="2.0", params={"shelf": "sale"})
    async with open_tab(console.url) as tab:
        await tab.page.goto("/console/spiders/shop/prices")
        await tab.page.get_by_role("link", name=f"Compare {now[:8]} with the run before").click()
        await tab.page.wait_for_url(f"**/console/jobs/{now}/compare?job_id={before}")
        price = tab.page.locator("#coverage").get_by_role("row", name="price")
        await expect(price).to_contain_text("100%")
        await expect(price.locator("strong.lower")).to_have_text("0% ")
        await expect(tab.page.get_by_role("row", name="Version 1.0 2.0")).to_be_visible()
        await expect(tab.page.get_by_role("row", name="params")).to_contain_text("sale")
        await expect(tab.page.get_by_role("row", name="response_status_count/503")).to_contain_text("3")
        await expect(tab.page.locator("#compared")).to_contain_text(
            "4 changed, 0 new, 0 removed, 0 unchanged, by url."
        )
        await tab.page.get_by_label("Same item by").fill("price")
        await tab.page.get_by_role("button", name="Compare", exact=True).click()
        await expect(tab.page.locator("#compared")).to_contain_text("4 items without price are not compared.")
        await axe(tab)
        # also from the page of the earlier run, what changed is told in order of time
        await tab.page.goto(f"/console/jobs/{before}/compare?job_id={now}")
        await tab.page.wait_for_url(f"**/console/jobs/{now}/compare?job_id={before}")
        main = tab.page.locator("main")
        await expect(main).to_contain_text(re.compile(f"What changed from {before[:8]} .*1.0.* to {now[:8]} .*2.0"))
        await expect(tab.page.get_by_role("columnheader", name=f"Earlier: {before[:8]}").first).to_be_visible()
        # no word of the first column is broken by a long message beside it
        row = tab.page.locator("#result").get_by_role("rowheader", name="Message")
        assert await row.evaluate("one => one.querySelector('bdi').getClientRects().length") == 1
    async with open_tab(console.url, **PHONE) as tab:
        await tab.page.goto(f"/console/jobs/{now}/compare?job_id={before}")
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
