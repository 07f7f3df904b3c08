"""The overview: what runs, what waits and why, how the last hour went; each figure leads to the list behind it."""

from __future__ import annotations

from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab
from forms import in_full
from playwright.async_api import expect

from gateway.access.keys import Scope
from gateway.jobs.job import JobStatus, WaitingReason
from gateway.nodes.store import Load

#: Bytes of the page and of all its files, as they travel.
WEIGHT = """[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
  .reduce((sum, entry) => sum + entry.encodedBodySize, 0)"""


@in_full("figures that lead to their lists here")
async def test_an_empty_platform_says_what_to_do_first(open_tab: OpenTab, console: Console, axe: Axe) -> None:
    async with open_tab(console.url) as tab:
        await tab.page.goto("/")
        await expect(tab.page.get_by_text("No crawls yet")).to_be_visible()
        await expect(tab.page.get_by_role("link", name="Start a crawl")).to_have_attribute("href", "/console/crawl")
        # what is wrong, and what to do
        await expect(
            tab.page.get_by_text("no node has published").or_(tab.page.get_by_text("no node")).first
        ).to_be_visible()
        await axe(tab)


async def test_figures_lead_to_their_lists_and_stay_fresh(open_tab: OpenTab, locked: Console, axe: Axe) -> None:
    locked.spider()
    locked.node("n1", load=Load(0.31, 0.95))
    running = locked.job(JobStatus.RUNNING, user_id="anne", start_urls=["https://shop.example/"])
    locked.job(JobStatus.PENDING, user_id="bert", waiting_reason=WaitingReason.SITE_BUSY, spider="berts-spider")
    for status in (JobStatus.FINISHED, JobStatus.PARTIAL, JobStatus.ERROR, JobStatus.CANCELLED):
        locked.job(status, age=600, user_id="bert", site="board", spider="berts-spider")
    locked.job(JobStatus.FINISHED, age=300, user_id="anne", message=HOSTILE, tags=[HOSTILE[:90]])
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("root", Scope.ADMIN).token)
        figures = tab.page.locator(".stats")
        running_link = figures.get_by_role("link", name="Running 1")
        await expect(running_link).to_have_attribute("href", "/console/jobs?status=running")
        await expect(figures.get_by_role("link", name="Failed 1")).to_be_visible()
        await expect(tab.page.get_by_text("1 job is waiting for another run of the site")).to_be_visible()
        # a partial run is no success, and a cancelled one says nothing
        for words in ("33 %", "1 partial, 1 cancelled"):
            await expect(tab.page.get_by_role("row", name="board").get_by_text(words)).to_be_visible()
        await expect(tab.page.get_by_role("row", name="n1").get_by_text("95 %")).to_be_visible()
        await axe(tab)
        # the first page is light: it is read over a slow line, too
        assert await tab.page.evaluate(WEIGHT) < 150_000
        # it is brought up to date while somebody looks, and the focus stays where it is
        link = tab.page.get_by_role("link", name="New crawl").last
        await link.focus()
        locked.change(running, status="finished")
        await expect(tab.page.get_by_text("No running jobs.")).to_be_visible(timeout=90_000)
        await expect(link).to_be_focused()
        # as a user sees it
        await tab.page.goto("/?user_id=anne")
        await expect(tab.page.get_by_text("No waiting jobs.")).to_be_visible()
        await expect(tab.page.get_by_text("None of your jobs is running.")).to_be_visible()
        assert "berts-spider" not in await tab.page.content()
        await expect(tab.page.locator(".stats")).to_have_count(0)
    async with open_tab(locked.url, **PHONE) as tab:
        await tab.sign_in(locked.key("anne").token)
        await expect(tab.page.get_by_role("heading", name="Recently ended")).to_be_visible()
        assert "berts-spider" not in await tab.page.content()
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await axe(tab)


async def test_who_waits_for_the_slots_of_others_learns_what_to_do(open_tab: OpenTab, locked: Console) -> None:
    locked.node("n1", alive=[locked.job(JobStatus.RUNNING, user_id="bert").id], slots=1)
    mine = locked.job(JobStatus.PENDING, user_id="anna", waiting_reason=WaitingReason.CAPACITY)
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("anna").token)
        await expect(tab.page.get_by_text("Jobs of other users have all slots")).to_be_visible()
        await tab.page.goto(f"/console/jobs/{mine.id}")
        steps = tab.page.get_by_label("Next steps")
        await expect(steps).to_contain_text("None of them is yours.")
        await expect(steps.get_by_role("listitem")).to_have_text(
            ["Wait for one of these jobs to end", "Ask an admin: raise NODE_SLOTS, or add a node"]
        )
        # no link to pages on which there is nothing for them
        await expect(steps.get_by_role("listitem").get_by_role("link")).to_have_count(0)
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("root", Scope.ADMIN).token)
        await tab.page.goto(f"/console/jobs/{mine.id}")
        steps = tab.page.get_by_label("Next steps")
        await expect(steps.get_by_role("link", name="Wait for a running job to end")).to_be_visible()
        await expect(steps.get_by_role("link", name="Raise NODE_SLOTS, or add a node")).to_be_visible()
        await expect(steps).not_to_contain_text("yours")
