"""The main act of each page, by the keyboard alone: others name what they use, and here one has to get there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from browser.console.platform import Console
from browser.console.tabs import OpenTab, Tab
from dataset_runs import DatasetRuns
from forms import first_in_short
from playwright.async_api import Locator, Page, expect

from gateway.access.keys import Scope
from gateway.jobs.job import JobStatus

#: More elements than any page here has that the Tab key stops at.
MOST = 90
_IS_THERE = "(element) => element === document.activeElement && element.matches(':focus-visible')"


class Act(NamedTuple):
    """What is done on a page."""

    address: str
    #: What is reached by the Tab key, one after the other: its role, its name, and the key that is pressed there or,
    #: after `=`, the text that is typed.
    steps: Sequence[tuple[str, str, str]]
    #: A text that is seen afterwards, or, from `/` on, a part of the address where it leads.
    leads_to: str


ACTS = {
    "overview": Act("/", [("link", "New crawl", "Enter")], "/console/crawl"),
    "jobs": Act("/console/jobs?status=error", [("link", "seo", "Enter")], "/console/jobs/{dead}"),
    "jobs, many": Act("/console/jobs?status=running", [("button", "Cancel…", "Enter")], "1 job"),
    "job": Act("/console/jobs/{failed}/runs", [("button", "Retry", "Enter")], "retry of"),
    "items": Act("/console/jobs/{done}/items", [("button", "Record 1 in full", "Enter")], "Copy as JSON"),
    "requests": Act("/console/jobs/{done}/requests", [("link", "Over 1 s", "Enter")], "slow_ms=1000"),
    "new crawl": Act(
        "/console/crawl?spider=seo",
        [("textbox", "Start URLs", "=https://keyboard.example/"), ("button", "Start crawl", "Enter")],
        "/console/jobs/",
    ),
    "schedules": Act("/console/schedules", [("button", "Pause", "Enter")], "Resume"),
    "week": Act("/console/schedules/week", [("link", "Next 7 days", "Enter")], "week="),
    "schedule": Act("/console/schedules/{schedule}", [("link", "Edit", "Enter")], "/edit"),
    "its form": Act(
        "/console/schedules/{schedule}/edit",
        [("textbox", "Name", "=renamed"), ("button", "Save", "Enter")],
        "Schedule saved",
    ),
    "datasets": Act("/console/datasets", [("link", "prices", "Enter")], "/console/datasets/prices"),
    "sites": Act("/console/sites", [("link", "board", "Enter")], "/console/sites/board"),
    "projects": Act("/console/projects", [("link", "default", "Enter")], "/console/projects/default"),
    "nodes": Act("/console/nodes", [("button", "Drain", "Enter"), ("button", "Drain", "Enter")], "Node is draining"),
    "dead letters": Act("/console/dead-letters", [("button", "Dismiss job", "Enter")], "Dismiss"),
}


@pytest.fixture(scope="module")
def ids(console: Console) -> dict[str, str]:
    console.spider()
    console.node()
    console.site("board")
    DatasetRuns(console.database, "anne").run([{"sku": "a"}])
    failed = console.job(JobStatus.ERROR, start_urls=["https://shop.example/"])
    dead = console.job(JobStatus.ERROR, dead=True, age=60)
    console.job(JobStatus.RUNNING)
    done = console.job(JobStatus.FINISHED)
    console.results(done, [{"n": 1}])
    console.requests(done, [{"url": "https://shop.example/", "status": 200, "ms": 5, "at": 1, "attempt": 1}])
    console.log(done, ["2027-06-01 09:00:01 [seo] INFO: a needle"])
    body = {"user_id": "anne", "spider": "seo", "start_urls": ["https://shop.example/"], "interval": "@daily"}
    schedule = console.http.post("/schedules", json=body).json()["schedule_id"]
    return {"failed": failed.id, "dead": dead.id, "done": done.id, "schedule": schedule}


async def reach(page: Page, target: Locator) -> None:
    """Press the Tab key until the focus, which has to be seen, is there."""
    await expect(target).to_be_visible()
    for _ in range(MOST):
        if await target.evaluate(_IS_THERE):
            return
        await page.keyboard.press("Tab")
    pytest.fail(f"the Tab key does not reach {target}")


async def do(page: Page, act: Act, ids: dict[str, str]) -> None:
    await page.goto(act.address.format(**ids))
    for role, name, pressed in act.steps:
        dialog = page.locator("dialog[open]")
        place = dialog if await dialog.count() else page
        await reach(page, place.get_by_role(role, name=name).first)  # type: ignore[arg-type] - roles are many
        if pressed.startswith("="):
            await page.keyboard.type(pressed[1:])
        else:
            await page.keyboard.press(pressed)
    leads_to = act.leads_to.format(**ids)
    if "/" in leads_to or "=" in leads_to:
        await page.wait_for_url(lambda url: leads_to in url)
    else:
        await expect(page.get_by_text(leads_to).first).to_be_visible()


@pytest.mark.parametrize("name", first_in_short([*ACTS], 3))
async def test_each_page_is_used_by_keyboard_alone(
    tab: Tab, console: Console, ids: dict[str, str], name: str
) -> None:
    await do(tab.page, ACTS[name], ids)
    tab.complaints.clear()  # of the page where it leads


async def test_operators_get_in_and_around_by_keyboard_alone(open_tab: OpenTab, locked: Console) -> None:
    key = locked.key("root", Scope.ADMIN).token
    async with open_tab(locked.url) as tab:
        for act in (
            Act("/console/keys", [("textbox", "Key", f"={key}"), ("button", "Sign in", "Enter")], "/console/keys"),
            Act("/console/keys", [("textbox", "User", "=carl"), ("button", "Create key", "Enter")], "db_"),
            Act("/console/audit", [("textbox", "User", "=root"), ("button", "Filter", "Enter")], "by=root"),
            Act("/", [("button", "Sign out", "Enter")], "/console/sign-in"),
        ):
            await do(tab.page, act, {})
        tab.complaints.clear()
