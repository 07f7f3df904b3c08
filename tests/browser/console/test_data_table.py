"""`<data-table>` over a real route, on a page that has nothing else."""

from __future__ import annotations

import json
import re

import pytest
from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from forms import in_full
from playwright.async_api import Locator, expect

from gateway.console.static_files import STATIC
from gateway.jobs.job import Job

_PUT = """async ([module, style, html]) => {
  const link = Object.assign(document.createElement("link"), {rel: "stylesheet", href: style});
  document.head.append(link);
  await new Promise((done) => link.addEventListener("load", done));
  await import(module);
  document.querySelector("main").innerHTML = "<h1>Test</h1>" + html;
}"""


async def put_table(tab: Tab, job: Job, more: str = "", query: str = "") -> Locator:
    """The table of a job's items; its rows."""
    await tab.page.goto(f"/{query}")
    html = f"""<data-table src="/jobs/{job.id}/items" rows="items" label="Items" keep="items:{job.id}" search="Search"
      fields="/jobs/{job.id}/fields" formats="jsonl json csv" picks {more}>
      <p data-empty hidden>Nothing here</p></data-table>"""
    await tab.page.evaluate(_PUT, [STATIC.address("js/data-table.js"), STATIC.address("data-table.css"), html])
    return tab.page.get_by_role("row")


@pytest.fixture(scope="module")
def many(console: Console) -> Job:
    job = console.job()
    console.results(job, [{"n": n, "is": "odd" if n % 2 else "even", "of": {"page": n // 50}} for n in range(1100)])
    return job


async def test_all_records_are_read_by_scrolling_or_by_keyboard(tab: Tab, many: Job) -> None:
    rows = await put_table(tab, many)
    await expect(rows.nth(1)).to_contain_text("even")
    first = tab.page.get_by_role("button", name="Record 1 in full")
    await first.focus()
    # one more than fits on a page
    for number in range(11, 62, 10):
        await tab.page.keyboard.press("PageDown")
        await expect(tab.page.get_by_role("button", name=f"Record {number} in full")).to_be_focused()
    # the next stop of the Tab key is in the same row, and the one after it below the table
    await tab.page.keyboard.press("Tab")
    await expect(tab.page.locator("summary:focus")).to_have_text("{page: 1}")
    box = tab.page.get_by_role("region", name="Items")
    said = tab.page.get_by_role("status").first
    end = "(box) => { box.scrollTop = box.scrollHeight; return box.querySelectorAll('tbody').length; }"
    for _ in range(200):
        assert await box.evaluate(end) <= 13
        if "1,100 of 1,100" in await said.inner_text():
            break
        await tab.page.wait_for_timeout(20)
    await expect(said).to_contain_text("–1,100 of 1,100")
    assert await rows.count() <= 13 * 50
    # what was scrolled away comes back
    earlier = tab.page.locator("button", has_text="Earlier records")
    for _ in range(40):
        top = await rows.nth(1).inner_text()
        if await first.count():
            break
        # it may go while one is about to click it
        await earlier.evaluate("button => { if (!button.hidden) { button.scrollIntoView(); button.click(); } }")
        await expect(rows.nth(1)).not_to_have_text(top, use_inner_text=True)
    await expect(first).to_be_attached()


@in_full("web/test_items.py, and the table as it is read here")
async def test_a_search_and_columns_are_in_the_address(tab: Tab, many: Job, console: Console) -> None:
    await put_table(tab, many)
    await expect(tab.page.get_by_role("columnheader", name="is")).to_be_visible()
    await tab.page.get_by_role("searchbox", name="Search").fill("ODD")
    await expect(tab.page.get_by_role("status").first).to_contain_text("searched")
    assert await tab.page.get_by_role("cell", name="even").count() == 0
    columns = tab.page.locator("summary", has_text="Columns").first
    await columns.press("Enter")
    await tab.page.get_by_label("of.page").check()
    await tab.page.get_by_label("is", exact=True).uncheck()
    await expect(tab.page.get_by_role("columnheader", name="of.page")).to_be_visible()
    await expect(tab.page.get_by_role("columnheader", name="is", exact=True)).to_be_hidden()
    await expect(columns).to_have_text(re.compile(r"Columns: \d+ of \d+"))
    await tab.page.keyboard.press("Escape")
    await expect(columns).to_be_focused()
    assert "q=ODD" in tab.page.url
    assert "column=of.page" in tab.page.url
    query = tab.page.url.removeprefix(f"{console.url}/")
    # without the address, the browser still knows the columns of this spider
    await put_table(tab, many)
    await expect(tab.page.get_by_role("columnheader", name="of.page")).to_be_visible()
    rows = await put_table(tab, many, query=query)
    await expect(rows.nth(1).get_by_role("cell").first).to_have_text("1")
    await tab.page.locator("summary", has_text="Download").press("Enter")
    shown = tab.page.get_by_role("link", name="CSV").nth(1)
    answer = console.http.get(str(await shown.get_attribute("href")))
    # a spreadsheet knows by the mark that it is UTF-8
    assert answer.text.splitlines()[:2] == ["\ufeffn,of,of.page", '1,"{""page"":0}",0']
    assert len(answer.text.splitlines()) == 551


@in_full("web/test_items.py, and the table as it is read here")
async def test_a_record_is_read_in_full(tab: Tab, console: Console, axe: Axe) -> None:
    job = console.job()
    tags = [f"tag{n}" for n in range(250)]
    console.results(job, [
        {"id": 9007199254740993, "url": "https://e.example/a", "seller": {"name": "Ann", "town": None}, "tags": tags},
        {"id": 2, "url": "javascript:alert(1)", "more": [[[["deep"]]]]},
    ])  # fmt: skip
    rows = await put_table(tab, job)
    link = rows.nth(1).get_by_role("link")
    await expect(link).to_have_attribute("rel", "noreferrer noopener nofollow")
    await expect(rows.nth(1)).to_contain_text("9007199254740993")
    await expect(rows.nth(2).get_by_role("link")).to_have_count(0)
    await axe(tab)
    button = tab.page.get_by_role("button", name="Record 1 in full")
    await button.press("Enter")
    drawer = tab.page.get_by_role("dialog", name="Record 1")
    await expect(drawer).to_contain_text("Ann")
    await drawer.get_by_text("[tag0, tag1").click()
    await expect(drawer.get_by_text("tag99", exact=True)).to_be_visible()
    await drawer.get_by_role("button", name="150 more").click()
    await drawer.get_by_role("button", name="50 more").click()
    await expect(drawer.get_by_text("tag249", exact=True)).to_be_visible()
    await axe(tab)
    await tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await drawer.get_by_role("button", name="Copy as JSON").click()
    await expect(drawer.get_by_role("button", name="Copied")).to_be_visible()
    copied = json.loads(await tab.page.evaluate("navigator.clipboard.readText()"))
    assert (copied["id"], copied["seller"], copied["tags"]) == (9007199254740993, {"name": "Ann", "town": None}, tags)
    await tab.page.keyboard.press("ArrowRight")
    await expect(tab.page.get_by_role("dialog", name="Record 2")).to_contain_text("javascript:alert")
    await tab.page.keyboard.press("Escape")
    await expect(tab.page.get_by_role("button", name="Record 2 in full")).to_be_focused()


async def test_hostile_records_change_nothing_but_themselves(open_tab: OpenTab, console: Console, axe: Axe) -> None:
    job = console.job()
    console.results(job, [
        {"title": HOSTILE, "__proto__x": 1, "large": "y" * 1_000_000, HOSTILE[:150]: {"<b>": [HOSTILE]}},
        {"title": None, "constructor": "c", "hasOwnProperty": True, "toString": {}},
    ])  # fmt: skip
    async with open_tab(console.url, **PHONE) as tab:
        rows = await put_table(tab, job)
        await expect(rows.nth(1)).to_contain_text(r"<script>alert(1)</script><b>bold</b>\u202egnp.exe\x07")
        await expect(rows.nth(2)).to_contain_text("null")
        assert await tab.page.locator("data-table b, data-table script").count() == 0
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await tab.page.get_by_role("button", name="Record 1 in full").tap()
        drawer = tab.page.get_by_role("dialog")
        await axe(tab)
        await drawer.get_by_role("button", name="All 1,000,000 characters").click()
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@in_full("web/test_items.py, and the table as it is read here")
async def test_nothing_is_said_in_words_and_what_comes_is_added(tab: Tab, console: Console) -> None:
    job = console.job()
    rows = await put_table(tab, job, 'live="0.2"')
    await expect(tab.page.get_by_text("Nothing here")).to_be_visible()
    await expect(tab.page.get_by_role("table")).to_be_hidden()
    console.results(job, [{"n": 7}])
    await expect(rows.nth(1)).to_contain_text("7", timeout=20_000)
    await expect(tab.page.get_by_text("Nothing here")).to_be_hidden()


@in_full("web/test_items.py, and the table as it is read here")
async def test_a_refusal_is_said_and_can_be_tried_again(tab: Tab, console: Console) -> None:
    job = console.job()
    console.results(job, [{"n": 7}])
    await tab.page.route(
        "**/items?*", lambda route: route.fulfill(status=503, json={"error": {"code": "x", "message": "away"}})
    )
    await put_table(tab, job)
    await expect(tab.page.get_by_role("alert")).to_contain_text("away")
    tab.expect_complaint("503")
    await tab.page.unroute("**/items?*")
    await tab.page.get_by_role("button", name="Try again").press("Enter")
    await expect(tab.page.get_by_role("cell", name="7")).to_be_visible()
