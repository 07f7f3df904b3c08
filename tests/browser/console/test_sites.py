"""Sites and targets: added, changed, run by hand, disabled and deleted."""

from __future__ import annotations

from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from forms import in_full
from playwright.async_api import expect

from gateway.access.keys import Scope
from gateway.contract.records import SpiderInfo
from gateway.jobs.job import JobStatus
from gateway.projects.eggs import SpiderStore

SEARCH = "https://jobs.example.com/search?q={keywords}&l={location}"

_ALL_IN_SIGHT = "[...document.querySelectorAll('.scroll')].every(box => box.scrollWidth <= box.clientWidth)"


def publish(console: Console) -> None:
    SpiderStore(console.database).publish("n1", [SpiderInfo(project="default", name="jobs", params_schema={})])


@in_full("web/test_sites.py, and a site that is run here")
async def test_a_site_is_added_and_changed(tab: Tab, console: Console, axe: Axe) -> None:
    publish(console)
    page = tab.page
    await page.goto("/console/sites")
    await page.get_by_role("main").get_by_role("link", name="Add site").first.press("Enter")
    await expect(page.get_by_label("Name")).to_be_focused()
    await page.keyboard.type("board")
    await page.get_by_label("Search URL").fill("https://{keywords}.example.com/")
    await axe(tab)
    await page.get_by_role("button", name="Add site").press("Enter")
    await expect(page.get_by_label("Search URL")).to_have_attribute("aria-invalid", "true")
    tab.expect_complaint("422")
    await page.get_by_label("Search URL").fill(SEARCH)
    await page.get_by_label("Selectors").fill("result=li[data-a=b]\ntitle=h2::text")
    await page.get_by_role("button", name="Add site").press("Enter")
    await page.wait_for_url("**/console/sites/board")
    made = console.http.get("/sites/board").json()
    assert (made["search_url"], made["rate_limit"]) == (SEARCH, None)
    assert made["selectors"] == {"result": "li[data-a=b]", "title": "h2::text"}
    await page.get_by_role("link", name="Edit").press("Enter")
    await page.get_by_label("Rate limit").fill("30/m")
    await page.get_by_label("Expectations").fill('{"min_items": 10}')
    await page.get_by_label("Selectors").fill("")
    await page.get_by_role("button", name="Save").press("Enter")
    await page.wait_for_url("**/console/sites/board")
    changed = console.http.get("/sites/board").json()
    assert (changed["rate_limit"], changed["expect"]["min_items"], changed["selectors"]) == ("30/m", 10, {})
    assert changed["payload"] == made["payload"]


async def test_a_site_is_run_has_targets_and_is_deleted(
    tab: Tab, open_tab: OpenTab, console: Console, axe: Axe
) -> None:
    publish(console)
    console.http.post("/sites", json={"name": "second", "search_url": SEARCH}).raise_for_status()
    console.job(JobStatus.ERROR, age=600, site="second", message=HOSTILE[:500])
    page = tab.page
    await _gets_a_target(tab, console, axe)
    async with open_tab(console.url, **PHONE) as phone:
        await _fits_a_phone(phone, axe)
    await page.get_by_role("textbox", name="Keywords").first.fill("baker")
    await page.get_by_role("button", name="Run now", exact=True).press("Enter")
    await page.wait_for_url("**/console/jobs/**")
    job = console.jobs.get(page.url.partition("/console/jobs/")[2][:32])
    assert (job.spec.site, job.spec.params["keywords"]) == ("second", "baker")
    tab.complaints.clear()  # the page of a job is another chapter
    await page.goto("/console/sites")
    await page.get_by_role("button", name="Disable second").press("Enter")
    await expect(page.get_by_role("row").filter(has_text="second")).to_contain_text("disabled")
    await page.get_by_role("link", name="1 active job").press("Enter")
    await page.get_by_role("button", name="Cancel it…").press("Enter")
    await page.get_by_role("dialog").get_by_role("button", name="Cancel 1 job").press("Enter")
    await expect(page.get_by_role("button", name="Cancel it…")).to_have_count(0)
    assert console.jobs.get(job.id).status is JobStatus.CANCELLED
    await page.get_by_role("dialog").get_by_role("button", name="Close").press("Enter")
    await page.get_by_role("button", name="Delete", exact=True).press("Enter")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").press("Enter")
    await page.wait_for_url("**/console/sites")
    assert console.http.get("/sites/second").status_code == 404


async def _gets_a_target(tab: Tab, console: Console, axe: Axe) -> None:
    page = tab.page
    await page.goto("/console/sites/second")
    await page.get_by_text("Add target").first.press("Enter")
    await page.get_by_role("textbox", name="Keywords").last.fill("welder <b>")
    await page.get_by_label("Interval").fill("0 9 * * *")
    await page.get_by_role("button", name="Add target").press("Enter")
    await expect(page.get_by_role("cell", name="welder <b>")).to_be_visible()
    await axe(tab)
    await page.get_by_role("link", name="Edit target").press("Enter")
    await page.get_by_label("Interval").fill("")
    await page.get_by_role("button", name="Save").press("Enter")
    await page.wait_for_url("**/console/sites/second")
    (target,) = console.http.get("/targets", params={"site": "second"}).json()["targets"]
    assert (target["keywords"], target["frequency"]) == ("welder <b>", None)


async def _fits_a_phone(phone: Tab, axe: Axe) -> None:
    for address in ("/console/sites", "/console/sites/second"):
        await phone.page.goto(address)
        assert await phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # its rows are cards: what can be done is in sight
        assert await phone.page.evaluate(_ALL_IN_SIGHT)
        await axe(phone)


@in_full("web/test_sites.py, and a site that is run here")
async def test_a_user_runs_sites_and_changes_none(open_tab: OpenTab, locked: Console) -> None:
    publish(locked)
    admin = {"Authorization": f"Bearer {locked.key('root', Scope.ADMIN).token}"}
    locked.http.post("/sites", json={"name": "board", "search_url": SEARCH}, headers=admin).raise_for_status()
    annes = locked.job(JobStatus.FINISHED, user_id="anne", site="board")
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("bert").token)
        await tab.page.goto("/console/sites")
        await tab.page.get_by_role("link", name="board").press("Enter")
        await expect(tab.page.get_by_role("button", name="Run now")).to_be_visible()
        await expect(tab.page.get_by_role("button", name="Delete")).to_have_count(0)
        await expect(tab.page.get_by_text("You have no runs of this site yet")).to_be_visible()
        assert annes.id[:8] not in await tab.page.content()
        for address in ("/console/new-site", "/console/sites/board/edit"):
            answer = await tab.page.goto(address)
            assert answer is not None
            assert answer.status == 403
        tab.complaints.clear()
