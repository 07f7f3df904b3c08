"""Datasets: what is known across runs, what each run has changed, and held runs that somebody decides on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from dataset_runs import DatasetRuns, exporting_parts
from forms import in_full
from playwright.async_api import expect

from gateway.access.keys import Scope
from gateway.datasets.dataset import RunState
from gateway.datasets.judging import HOLDS_AFTER
from gateway.datasets.run_exports import Exporting
from gateway.datasets.service import Datasets
from gateway.datasets.store import RunStore

MANY = 40


def offers(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"sku": f"s{n:02}", "price": n + 1.5, "title": f"thing {n}", **fields} for n in range(count)]


@pytest.fixture
def runs(console: Console) -> DatasetRuns:
    return DatasetRuns(console.database)


@in_full("web/test_datasets.py, and what a run has changed here")
async def test_no_datasets_say_how_one_begins(tab: Tab, locked: Console, open_tab: OpenTab) -> None:
    key = locked.key("newcomer").token
    async with open_tab(locked.url) as mine:
        await mine.sign_in(key)
        await mine.page.goto("/console/datasets")
        await expect(mine.page.get_by_text("No datasets yet")).to_be_visible()
        await expect(mine.page.get_by_role("main").get_by_role("link", name="New crawl")).to_be_visible()


async def test_what_a_run_has_changed_is_read_field_by_field(  # noqa: PLR0917 - fixtures
    tab: Tab, open_tab: OpenTab, runs: DatasetRuns, console: Console, axe: Axe, tmp_path: Path
) -> None:
    exports = [{"to": "prices", "format": "csv"}]
    query = {"user_id": runs.user}
    console.http.put("/datasets/prices", params=query, json={"key": ["sku"], "exports": exports}).raise_for_status()
    runs.run(offers(5))
    second = runs.crawl([*offers(3)[:2], {"sku": "s02", "price": [9], "title": HOSTILE[:300]}, {"sku": "new"}])
    runs.fold()
    parts = exporting_parts(console.database, tmp_path)
    while run := parts[RunStore].claim_exports(0):
        parts[Exporting].export(run)
    page = tab.page
    await page.goto("/console/datasets")
    row = page.get_by_role("row").filter(has_text=runs.user)
    await expect(row).to_contain_text("1 new, 1 changed, 2 removed")
    await axe(tab)
    await row.get_by_role("link", name="prices").press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("prices")
    changes = page.get_by_role("region", name="Changes of the last run")
    await expect(changes.get_by_role("row")).to_have_count(5)
    changed = changes.get_by_role("row").filter(has_text="changed")
    await expect(changed.locator("del").first).to_have_text("3.5")
    await expect(changed.locator("ins").first).to_have_text("[9]")
    await axe(tab)
    await page.get_by_role("link", name="All changes of this run").press("Enter")
    await expect(page.get_by_text("1 new, 1 changed, 2 removed.")).to_be_visible()
    await expect(page.get_by_text("snapshot as csv to prices: 4 rows")).to_be_visible()
    await page.get_by_role("link", name="The job").press("Enter")
    await page.get_by_role("link", name="Changes", exact=True).press("Enter")
    await page.wait_for_url(f"**/console/jobs/{second}/changes**")
    await expect(page.get_by_role("region", name="Changes of this run").get_by_role("row")).to_have_count(5)
    await axe(tab)
    async with open_tab(console.url, **PHONE) as phone:
        await phone.page.goto(f"/console/datasets/prices?owner={runs.user}")
        await expect(phone.page.get_by_role("region", name="Changes of the last run")).to_be_visible()
        assert await phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await axe(phone)


@in_full("web/test_datasets.py, and what a run has changed here")
async def test_items_are_a_table_and_changes_a_spreadsheet(tab: Tab, runs: DatasetRuns, console: Console) -> None:
    runs.run(offers(3))
    runs.run(offers(3, title="other"))
    page = tab.page
    await page.goto(f"/console/datasets/prices/items?owner={runs.user}")
    table = page.get_by_role("table").first
    await expect(table.get_by_role("row")).to_have_count(4)
    await expect(table.get_by_role("columnheader", name="price")).to_be_visible()
    await page.get_by_role("searchbox").fill("s01")
    await expect(table.get_by_role("row")).to_have_count(2)
    await page.locator("summary", has_text="Download").press("Enter")
    file = console.http.get(str(await page.get_by_role("link", name="CSV").first.get_attribute("href")))
    assert len(file.raise_for_status().text.splitlines()) == 4
    # the runs of this test have ended in another year
    await page.goto(f"/console/datasets/prices?owner={runs.user}")
    address = str(await page.get_by_role("link", name="CSV").get_attribute("href"))
    assert console.http.get(address).is_success


async def test_a_held_run_says_why_and_is_decided_on(tab: Tab, runs: DatasetRuns, axe: Axe) -> None:
    for _ in range(HOLDS_AFTER):
        assert runs.run(offers(MANY)) is RunState.PUBLISHED
    held = runs.crawl(offers(MANY, price=None))
    assert runs.fold() == [RunState.HELD]
    page = tab.page
    await page.goto("/")
    await expect(page.get_by_text("Runs are held because their results look wrong")).to_be_visible()
    # whoever looks at a list sees it too
    badge = page.get_by_role("link", name="price: mostly missing")
    for where in ("/", f"/console/jobs?user={runs.user}&sort=newest", f"/console/jobs/{held}/log"):
        await page.goto(where)
        await expect(page.get_by_role("link", name="held", exact=True).first).to_be_visible()
        await axe(tab)
    await expect(badge).to_be_visible()
    await page.goto(f"/console/datasets/prices?owner={runs.user}")
    why = page.locator(".note").filter(has_text="is held")
    await expect(why).to_contain_text("of the items have 'price'")
    await expect(why.locator("code").first).to_contain_text('"price":null')
    await axe(tab)
    await page.goto(f"/console/datasets/prices/normal?owner={runs.user}")
    await expect(page.get_by_role("row").filter(has_text="price").filter(has_text="filled")).to_contain_text("no")
    await axe(tab)
    await page.goto(f"/console/datasets/prices?owner={runs.user}")
    await page.get_by_role("button", name="Reject").press("Enter")
    await page.get_by_role("dialog").get_by_role("button").last.press("Enter")
    await expect(page.locator(".note").filter(has_text="is held")).to_have_count(0)
    await expect(page.get_by_role("row").filter(has_text="rejected")).to_have_count(1)


@in_full("web/test_datasets.py, and what a run has changed here")
async def test_an_example_of_a_flipped_type_has_that_type(tab: Tab, runs: DatasetRuns) -> None:
    for _ in range(HOLDS_AFTER):
        runs.run(offers(MANY))
    # the first ones are as ever
    runs.crawl([*offers(MANY)[:8], *({**one, "title": [one["title"]]} for one in offers(MANY)[8:])])
    assert runs.fold() == [RunState.HELD]
    await tab.page.goto(f"/console/datasets/prices?owner={runs.user}")
    why = tab.page.locator(".note").filter(has_text="is held")
    await expect(why.locator("code").first).to_contain_text('"title":["thing 8"]')
    # a run that ends meanwhile is seen without a reload
    assert runs.run(offers(MANY + 1)) is RunState.PUBLISHED
    await expect(tab.page.get_by_role("region", name="Changes of the last run")).to_contain_text("s40")
    await expect(why).to_have_count(0)


@in_full("web/test_datasets.py, and what a run has changed here")
async def test_items_that_are_set_apart_say_why(tab: Tab, runs: DatasetRuns, axe: Axe) -> None:
    runs.run(offers(3))
    schema = {"properties": {"price": {"type": "number"}}}
    runs.parts[Datasets].change(runs.dataset, {"item_schema": schema})
    job_id = runs.crawl(offers(3, price="sold out"))
    runs.fold()
    page = tab.page
    for where in (f"/console/datasets/prices?owner={runs.user}", f"/console/jobs/{job_id}/changes"):
        await page.goto(where)
        note = page.locator(".note").filter(has_text="3 items are set apart")
        await expect(note).to_contain_text("price: 'sold out' is not of type 'number' · 3")
        await axe(tab)
    await page.goto(f"/console/datasets/prices/normal?owner={runs.user}")
    await expect(page.get_by_role("link", name="JSON Schema")).to_be_visible()


@in_full("web/test_datasets.py, and what a run has changed here")
async def test_who_only_reads_decides_on_nothing_and_sees_nothing_of_others(
    open_tab: OpenTab, locked: Console
) -> None:
    mine = DatasetRuns(locked.database, "reader")
    for _ in range(HOLDS_AFTER):
        mine.run(offers(MANY))
    mine.crawl(offers(MANY, price=None))
    mine.fold()
    others = DatasetRuns(locked.database, "other")
    others.run(offers(3), dataset={"name": "secret", "key": ["sku"]})
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("reader", Scope.READ).token)
        await tab.page.goto("/console/datasets")
        await expect(tab.page.get_by_role("link", name="prices")).to_be_visible()
        await expect(tab.page.get_by_text("secret")).to_have_count(0)
        await tab.page.get_by_role("link", name="prices").press("Enter")
        await expect(tab.page.locator(".note").filter(has_text="is held")).to_be_visible()
        await expect(tab.page.get_by_role("button", name="Accept")).to_have_count(0)
        await tab.page.goto("/console/datasets/secret")
        await expect(tab.page.get_by_role("heading", level=1)).to_have_text("Not Found")
        tab.expect_complaint("404")


@in_full("web/test_datasets.py, and what a run has changed here")
async def test_a_schedule_gets_a_dataset_and_loses_it(tab: Tab, console: Console) -> None:
    console.spider()
    body = {"user_id": "anne", "spider": "seo", "start_urls": ["https://a.example/"], "interval": "@daily"}
    made = console.http.post("/schedules", json=body).raise_for_status().json()
    address, page = f"/schedules/{made['schedule_id']}", tab.page
    for name, expected in (("prices", {"name": "prices", "key": ["sku"]}), ("", None)):
        await page.goto(f"/console{address}/edit")
        if name:
            await page.get_by_text("Expectations, settings").press("Enter")
        await page.get_by_label("Dataset").fill(name)
        await page.get_by_label("Key fields").fill("sku" if name else "sku\nurl")
        await page.get_by_role("button", name="Save").press("Enter")
        await page.wait_for_url(f"**/console{address}")
        await expect(page.get_by_text("a few seconds after it ends")).to_have_count(1 if name else 0)
        found = console.http.get(address).json()["crawl"]["dataset"]
        assert (found and {one: found[one] for one in ("name", "key")}) == expected


@in_full("web/test_datasets.py, and what a run has changed here")
async def test_a_schedule_shows_what_its_own_last_run_has_changed(
    tab: Tab, runs: DatasetRuns, console: Console
) -> None:
    console.spider()
    body = {"user_id": runs.user, "spider": "seo", "interval": "@daily"}
    first, second = (
        console.http.post("/schedules", json={**body, "start_urls": [f"https://{name}.example/"]}).json()[
            "schedule_id"
        ]
        for name in ("a", "b")
    )
    runs.run(offers(2), schedule_id=first)
    runs.run([{"sku": f"other-{n}"} for n in range(3)], schedule_id=second, start_urls=("https://b.example/",))
    for schedule, expected in ((first, "2 new, 0 changed, 0 removed."), (second, "3 new, 0 changed, 0 removed.")):
        await tab.page.goto(f"/console/schedules/{schedule}")
        await expect(tab.page.get_by_text(expected)).to_be_visible()


@in_full("web/test_datasets.py, and what a run has changed here")
async def test_a_job_shows_its_changes_as_soon_as_they_are_known(tab: Tab, runs: DatasetRuns) -> None:
    runs.run(offers(1))
    job = runs.crawl(offers(2))
    await tab.page.goto(f"/console/jobs/{job}/changes")
    await expect(tab.page.get_by_text("being compared")).to_be_visible()
    runs.fold()
    await tab.page.evaluate("document.body.dispatchEvent(new CustomEvent('tick'))")
    await expect(tab.page.get_by_text("1 new, 0 changed, 0 removed.")).to_be_visible()
