"""The page of a spider says at a glance how its runs went, and leads to each of them."""

from __future__ import annotations

import re
from datetime import timedelta

from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from jobs import make_job
from playwright.async_api import expect

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.contract.records import Progress, SpiderInfo
from gateway.items.items import Item
from gateway.jobs.job import Attempt, JobStatus
from gateway.jobs.run_days import RunDays
from gateway.projects.eggs import SpiderStore

ADDRESS = "/console/spiders/shop/prices"
#: Of all runs: midnight may be over when a page names their days.
NOW = utc_now()


def run(console: Console, day: int, status: JobStatus, items: int, **spec: str) -> str:
    """One that ended so many days ago, after a minute for each ten items."""
    end = NOW - timedelta(days=day)
    job = make_job(
        spec=CrawlSpec(**{"spider": "prices", "project": "shop", "start_urls": ("http://shop.example/",), **spec}),
        status=status,
        created_at=end - timedelta(hours=1),
        started_at=end - timedelta(minutes=items / 10),
        finished_at=end,
        settled=True,
        live_key=None,
        message=HOSTILE.replace("\x00", "") if status is JobStatus.ERROR else None,
        progress=Progress(completed_pages=items, items_count=items, errors_count=10),
    )
    console.jobs.insert(job)
    RunDays(console.database).add([job])
    return job.id


async def test_how_the_runs_of_a_spider_went_is_seen_at_a_glance(
    open_tab: OpenTab, console: Console, axe: Axe
) -> None:
    async with open_tab(console.url) as tab:
        await tab.page.goto(ADDRESS)
        await expect(tab.page.get_by_text("No runs of this spider yet")).to_be_visible()
        for day in range(1, 9):
            run(console, day, JobStatus.FINISHED, 90 + day, version="1.0")
        failed = run(console, 0, JobStatus.ERROR, 20, version="2.0")
        run(console, 0, JobStatus.FINISHED, 5000, spider="other")
        run(console, 0, JobStatus.FINISHED, 5000, project="news")
        await tab.page.reload()
        await expect(tab.page.get_by_role("img", name="Items of the last 9 runs, up to 98")).to_be_visible()
        assert await tab.page.locator("#runs figure rect").count() == 18
        await axe(tab)
        row = tab.page.locator("#runs").get_by_role("row").nth(1)
        await expect(row).to_contain_text("2.0")
        await row.get_by_role("link", name="job").click()
        await tab.page.wait_for_url(f"**/console/jobs/{failed}/**")
        await tab.page.get_by_role("heading", level=1).get_by_role("link", name="prices").click()
        await tab.page.wait_for_url(f"**{ADDRESS}")
    async with open_tab(console.url, **PHONE) as tab:
        await tab.page.goto(ADDRESS)
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def with_prices(console: Console, day: int, version: str, price: int | None) -> None:
    attempt = Attempt(attempt=1, node="n1", dispatched_at=utc_now())
    job = run(console, day, JobStatus.FINISHED, 40, version=version, spider="faded")
    console.database["jobs"].update_one(
        {"_id": job}, {"$set": {"attempt": 1, "attempts": {"1": attempt.model_dump(exclude_none=True)}}}
    )
    rows = [{"url": f"http://shop.example/sale/{one}", "price": price} for one in range(4)]
    console.items.insert([Item(job, 1, end, row) for end, row in enumerate(rows, start=1)])


def faded(console: Console) -> None:
    """Three runs of a spider; the last one has a new version, and finds no price."""
    for day, version, price in ((3, "1.9", 5), (2, "1.9", 5), (1, "2.0", None)):
        with_prices(console, day, version, price)
    infos = [SpiderInfo(project="shop", name="faded", version=version) for version in ("1.9", "2.0")]
    SpiderStore(console.database).publish("shops", infos)


async def test_what_has_changed_in_the_fields_is_said_with_the_version_and_the_pages(
    open_tab: OpenTab, console: Console, axe: Axe
) -> None:
    faded(console)
    async with open_tab(console.url) as tab:
        await tab.page.goto("/")
        note = tab.page.locator("#unusual")
        await expect(note).to_contain_text("shop/faded: a field is empty more often than before")
        await expect(note).to_contain_text(
            "price is empty in all items since the first run of version 2.0 (1 d ago); it is missing on pages below "
            "/sale (4 of 4 items)"
        )
        # the version is taken back from there, and the note says that no run has shown it yet
        await note.get_by_role("button", name="Roll back to 1.9…").click()
        await tab.page.get_by_role("dialog").get_by_role("button", name="Roll back to 1.9", exact=True).click()
        await expect(note).to_contain_text(
            "Version 1.9 is the latest now. No run has used it yet: the last run had 2.0."
        )
        await note.get_by_role("link", name="shop/faded").click()
        await expect(note).to_contain_text("the first run of version 2.0")
        row = tab.page.locator("#coverage").get_by_role("row").nth(1)
        await expect(row).to_contain_text("price")
        await expect(row).to_contain_text("the first run of version 2.0")
        await expect(row).to_contain_text("missing on pages below /sale (4 of 4 items)")
        await axe(tab)
        await row.get_by_role("link", name="Compare").click()
        await tab.page.wait_for_url("**/compare?job_id=**")
        await expect(tab.page.locator("#coverage")).to_contain_text("100%")
        await tab.page.goto("/console/jobs?spider=faded")
        rows = tab.page.get_by_role("row")
        await expect(rows.nth(1)).to_contain_text("a field lost values: price")
        await expect(rows.nth(2)).not_to_contain_text("lost values")
        await rows.nth(1).get_by_role("link", name="a field lost values").click()
        lost = tab.page.locator(".job-standing .badge", has_text="price")
        await expect(lost).to_have_text("price: filled in 0 % of items, before 100 %")
        await axe(tab)
        with_prices(console, 0, "1.9", 5)
        await lost.click()
        await the_run_since_which_it_is_lost(tab)
        await axe(tab)


async def the_run_since_which_it_is_lost(tab: Tab) -> None:
    """The answer is at the top of the page to which the question leads, also after a good run."""
    await tab.page.get_by_role("link", name="Since which run? price").click()
    answer = tab.page.locator("#unusual").get_by_role("status")
    await expect(answer).to_contain_text(re.compile(r"price lost values in run \w{8} \(1 d ago, version 2\.0\): 0 %"))
    await expect(answer).to_contain_text(re.compile(r"the run before, \w{8} \(2 d ago, version 1\.9\), 100 % had it"))
    await expect(answer).to_contain_text("It has values again since run")


async def test_how_the_runs_of_a_month_and_of_three_went_is_seen_day_by_day(
    open_tab: OpenTab, console: Console, axe: Axe
) -> None:
    for day, status in (
        (1, JobStatus.FINISHED),
        (1, JobStatus.ERROR),
        (2, JobStatus.FINISHED),
        (60, JobStatus.ERROR),
    ):
        run(console, day, status, 100, spider="daily")
    # what is gone is in the sums
    console.database["jobs"].delete_many({"spec.spider": "daily"})
    async with open_tab(console.url) as tab:
        await tab.page.goto("/console/spiders/shop/daily")
        stats = tab.page.locator(".stats")
        await expect(stats).to_contain_text("67 %")
        await expect(stats).to_contain_text("ended in 30 days")
        name = "Runs of each of the last 30 days, up to 2"
        bars = tab.page.get_by_role("img", name=name).locator("g")
        assert [await bar.locator("title").text_content() for bar in await bars.all()] == [
            f"{named(2)}: 1 finished", f"{named(1)}: 1 finished, 1 error",
        ]  # fmt: skip
        await tab.page.get_by_text("Figures", exact=True).click()
        await expect(tab.page.get_by_role("region", name="Runs by day").get_by_role("row")).to_have_count(3)
        await axe(tab)
        await tab.page.get_by_role("link", name="90 days").click()
        await expect(stats).to_contain_text("50 %")
        await expect(tab.page.get_by_role("img", name="Success rate of each of the last 90 days")).to_be_visible()


def named(days: int) -> str:
    day = NOW - timedelta(days=days)
    return f"{day.day} {day:%B}"
