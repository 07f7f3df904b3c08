"""The palette and the keys: everything is reached without a mouse, and nothing happens while somebody types."""

from __future__ import annotations

from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from forms import in_full
from machine import missing
from playwright.async_api import expect

from gateway.console.help import ARCHIVE
from gateway.contract.records import SpiderInfo
from gateway.jobs.job import JobStatus
from gateway.projects.eggs import SpiderStore


async def test_the_palette_finds_jobs_spiders_sites_pages_and_actions(tab: Tab, axe: Axe, console: Console) -> None:
    console.spider("offers")
    console.site("board")
    job = console.job(JobStatus.FINISHED, start_urls=["https://shop.example/" + "y" * 300], tags=["evil"])
    console.database["jobs"].update_one({"_id": job.id}, {"$set": {"spec.spider": HOSTILE[:90]}})
    page = tab.page
    await page.goto("/")
    await page.keyboard.press("Control+k")
    field = page.get_by_role("combobox")
    await expect(field).to_be_focused()
    # without a word: what this page offers, and all pages
    await expect(page.get_by_role("option", name="Dead letters")).to_be_visible()
    await axe(tab)
    for typed, found in (
        ("offers", "offers"),
        ("board", "board"),
        ("theme", "Theme"),
        ("new", "New crawl"),
        ("evil", "<script>"),
        (job.id, "<script>"),
    ):
        await field.fill(typed)
        await expect(page.get_by_role("option", name=found).first).to_be_visible()
    # what is hostile is shown as text
    assert "\u202e" not in await page.get_by_role("listbox").inner_text()
    await field.fill("dead l")
    await expect(page.get_by_role("option").first).to_contain_text("Dead letters")
    await page.keyboard.press("ArrowUp")
    await expect(page.get_by_role("option", selected=True)).to_contain_text("All jobs matching")
    await page.keyboard.press("ArrowDown")
    await expect(page.get_by_role("option", selected=True)).to_contain_text("Dead letters")
    await page.keyboard.press("Escape")
    await expect(field).to_have_count(0)
    await page.keyboard.press("/")
    # Enter waits for what belongs to the text
    await field.fill(job.id)
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/console/jobs/{job.id}**")


async def test_the_palette_finds_acts_and_what_the_help_says(tab: Tab) -> None:
    page = tab.page
    await page.goto("/console/jobs")
    await page.keyboard.press("Control+k")
    options = page.get_by_role("option")
    await page.keyboard.type("stop site")
    await expect(options.filter(has_text="Stop all crawls of a site or host…")).to_be_visible()


#: By what people type: the first thing that they are offered.
ASKED = {
    "stop crawling a site": "Stop all crawls of a site or host",
    "compare today with yesterday": "Compare today's run with yesterday's",
    "read only access for colleague": "Let a colleague read",
    "export prices to excel": "Download items as a spreadsheet",
    "which field is missing": "See which fields lost values",
    "go back to the old version": "Roll back shop to 1.0",
    "what failed last night": "See the errors of the last night",
    "slowest page": "Which pages are slow?",
    "robots.txt": "The delay that robots.txt asks for",
}


async def test_the_palette_answers_in_the_words_of_people(tab: Tab, console: Console) -> None:
    if not ARCHIVE.exists():
        missing("the documentation is not built: make docs")
    SpiderStore(console.database).publish(
        "n1", [SpiderInfo(project="shop", version=version, name="prices") for version in ("1.0", "2.0")]
    )
    page = tab.page
    await page.goto("/console/jobs")
    await page.keyboard.press("Control+k")
    field = page.get_by_role("dialog").get_by_role("combobox")
    options = page.locator("#palette-list").get_by_role("option")
    for typed, first in ASKED.items():
        await field.fill(typed)
        await expect(options.last).to_contain_text(typed)
        await expect(options.first).to_contain_text(first)
    await field.fill("read only access for colleague")
    await expect(options.first).to_contain_text("Let a colleague read")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/console/keys#colleague")


@in_full("the palette and the keys here")
async def test_the_palette_leads_to_the_pages_of_sites_and_schedules(tab: Tab, console: Console) -> None:
    console.spider("offers")
    console.site("garden", 8)
    body = {"user_id": "anne", "spider": "offers", "interval": "@daily"}
    shop, noon = ["https://shop.example/"], ["https://noon.example/"]
    schedules = [{**body, "start_urls": shop, "name": "at dawn"}, {**body, "start_urls": noon}]
    console.http.put("/datasets/herbs", params={"user_id": "anne"}, json={})
    console.spider("roses", "flowerbed")
    dawn, later = (console.http.post("/schedules", json=one).json()["schedule_id"] for one in schedules)
    for typed, words, address in (
        ("garden", "Site garden", "sites/garden"),
        ("herbs", "Dataset herbs", "datasets/herbs?owner=anne"),
        ("flowerbed", "Project flowerbed", "projects/flowerbed"),
        ("dawn", "Schedule at dawn", f"schedules/{dawn}"),
        ("noon", "Schedule offers https://noon", f"schedules/{later}"),
    ):
        await tab.page.goto("/")
        await tab.page.keyboard.press("Control+k")
        await tab.page.keyboard.type(typed)
        await tab.page.get_by_role("option", name=words).first.click()
        await tab.page.wait_for_url(f"**/console/{address}")


async def test_keys_lead_everywhere_but_not_while_somebody_types(tab: Tab, axe: Axe) -> None:
    page = tab.page
    await page.goto("/")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Shortcuts")).to_contain_text("New crawl")
    await axe(tab)
    # nothing but the dialog hears keys now
    await page.keyboard.press("n")
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_have_count(0)
    assert page.url.endswith("/")
    await page.keyboard.press("/")
    await page.keyboard.type("gn?")
    await expect(page.get_by_role("combobox")).to_have_value("gn?")
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_have_count(0)
    for keys, address in (("gj", "/console/jobs"), ("go", "/"), ("n", "/console/crawl")):
        for key in keys:
            await page.keyboard.press(key)
        await page.wait_for_url(f"**{address}")
    await page.goto("/")
    # who needs the keys for something else switches them off
    await page.keyboard.press("?")
    await page.get_by_label("Use single-key shortcuts").press("Space")
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_have_count(0)
    await page.keyboard.press("n")
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox")).to_be_focused()
    assert page.url.endswith("/")


@in_full("the palette and the keys here")
async def test_the_list_of_keys_says_once_what_a_key_does_here(tab: Tab, console: Console) -> None:
    job = console.job()
    console.log(job, ["2027-06-01 09:00:01 [seo] INFO: Spider opened"])
    await tab.page.goto(f"/console/jobs/{job.id}/log")
    await expect(tab.page.get_by_text("Spider opened")).to_be_visible()
    await tab.page.keyboard.press("?")
    listed = tab.page.get_by_role("dialog", name="Shortcuts").locator("dl > div")
    told = [" ".join(text.split()) for text in await listed.all_inner_texts()]
    assert {"/ Search the log", "Ctrl F Search the log", "Ctrl K Search or jump to a page"} <= set(told)
    assert [one for one in told if one.startswith("/ ")] == ["/ Search the log"]


@in_full("the palette and the keys here")
async def test_a_phone_searches_from_the_menu(open_tab: OpenTab, console: Console) -> None:
    async with open_tab(console.url, **PHONE) as tab:
        await tab.page.goto("/")
        await tab.page.get_by_role("button", name="Menu").tap()
        await tab.page.get_by_role("button", name="Search").tap()
        await expect(tab.page.get_by_role("combobox")).to_be_focused()
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
