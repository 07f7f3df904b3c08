"""What all pages share: the frame, signing in, the theme, forms that call the API."""

from __future__ import annotations

from urllib.parse import quote, unquote

from browser.console.platform import Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from forms import in_full
from playwright.async_api import expect

from gateway.access.keys import Scope


@in_full("web/test_session.py, and one who signs in here")
async def test_the_first_page_is_read_by_everybody(tab: Tab, axe: Axe, console: Console) -> None:
    await tab.page.goto("/")
    await expect(tab.page.get_by_role("heading", level=1)).to_have_text("Overview")
    await expect(
        tab.page.get_by_role("navigation", name="Console").get_by_role("link", name="Overview")
    ).to_have_attribute("aria-current", "page")
    await axe(tab)
    # the navigation stays where it is
    await tab.page.evaluate("document.querySelector('main').style.minHeight = '4000px'; scrollTo(0, 2000)")
    await expect(tab.page.get_by_role("link", name="Overview")).to_be_in_viewport()
    # only our own files, under addresses that are kept for ever
    assert all(address.startswith(console.url) for address in tab.asked)


@in_full("web/test_session.py, and one who signs in here")
async def test_the_theme_is_switched_and_kept(tab: Tab) -> None:
    await tab.page.goto("/")
    theme = tab.page.get_by_role("button", name="Theme")
    for expected in ("light", "dark"):
        await theme.press("Enter")
        await expect(tab.page.locator("html")).to_have_attribute("data-theme", expected)
    await tab.page.reload()
    await expect(tab.page.locator("html")).to_have_attribute("data-theme", "dark")
    await expect(theme).to_have_text("Theme: dark")


async def test_paper_has_what_a_page_says_and_nothing_to_press(open_tab: OpenTab, console: Console) -> None:
    console.job(tags=["on-paper"])
    async with open_tab(console.url, color_scheme="dark") as tab:
        page = tab.page
        await page.goto("/console/jobs?tag=on-paper")
        await page.emulate_media(media="print")
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await expect(page.get_by_role("table").get_by_text("on-paper")).to_be_visible()
        for role in ("navigation", "button", "textbox", "combobox"):
            assert await page.get_by_role(role).count() == 0, role
        paper = "getComputedStyle(document.documentElement).backgroundColor"
        assert await page.evaluate(paper) == "rgb(255, 255, 255)"


@in_full("web/test_session.py, and one who signs in here")
async def test_a_phone_has_a_menu_and_nothing_to_scroll_sideways(
    open_tab: OpenTab, console: Console, axe: Axe
) -> None:
    async with open_tab(console.url, **PHONE) as tab:
        await tab.page.goto("/")
        wide = "document.documentElement.scrollWidth <= innerWidth"
        assert await tab.page.evaluate(wide)
        jobs = tab.page.get_by_role("navigation", name="Console").get_by_role("link", name="Overview")
        await expect(jobs).to_be_hidden()
        await tab.page.get_by_role("button", name="Menu").press("Enter")
        await expect(jobs).to_be_visible()
        await axe(tab)
        await tab.page.keyboard.press("Escape")
        await expect(jobs).to_be_hidden()


async def test_one_signs_in_with_a_key_comes_back_and_signs_out(open_tab: OpenTab, locked: Console, axe: Axe) -> None:
    anne = locked.key("anne", Scope.ADMIN)
    async with open_tab(locked.url) as tab:
        await tab.page.goto("/?user_id=bert")
        assert tab.page.url.startswith(f"{locked.url}/console/sign-in?next=")
        await axe(tab)
        key = tab.page.get_by_label("Key")
        await expect(key).to_be_focused()
        await key.fill("db_wrong")
        await tab.page.keyboard.press("Enter")
        await expect(tab.page.get_by_role("alert")).to_contain_text("not valid")
        tab.expect_complaint("401")
        await key.fill(str(anne.token))
        await tab.page.keyboard.press("Enter")
        await tab.page.wait_for_url("**/?user_id=bert")
        # an admin looks as a user, and stops
        await expect(tab.page.get_by_text("Viewing as bert")).to_be_visible()
        await tab.page.get_by_role("link", name="Exit").click()
        await expect(tab.page.get_by_text("Signed in as anne")).to_be_visible()
        await tab.page.get_by_role("button", name="Sign out").press("Enter")
        await tab.page.wait_for_url("**/console/sign-in")
        await tab.page.goto("/")
        assert "/console/sign-in" in tab.page.url


async def test_the_next_user_of_a_browser_gets_nothing_of_the_one_before(open_tab: OpenTab, locked: Console) -> None:
    saved = "/console/jobs?status=error"
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("anne").token)
        await tab.page.goto(saved)
        await tab.page.get_by_role("button", name="Save this view…").press("Enter")
        await tab.page.get_by_label("Name").fill("Mine")
        await tab.page.keyboard.press("Enter")
        await expect(tab.page.get_by_role("link", name="Mine")).to_be_visible()
        await tab.page.get_by_role("button", name="Sign out").press("Enter")
        await tab.page.wait_for_url("**/console/sign-in")
        # what is behind `next` is an address, and nothing in it is an order to the form
        target = "/console/jobs?status=error&q=|goto:https://evil.example/{csrf_token}"
        await tab.page.goto(f"/console/sign-in?next={quote(target)}")
        await tab.page.get_by_label("Key").fill(str(locked.key("bert").token))
        await tab.page.keyboard.press("Enter")
        await tab.page.wait_for_url("**/console/jobs?**")
        assert unquote(tab.page.url) == locked.url + target
        await expect(tab.page.get_by_text("Signed in as bert")).to_be_visible()
        await tab.page.goto(saved)
        await expect(tab.page.get_by_role("button", name="Save this view…")).to_be_visible()
        await expect(tab.page.get_by_role("link", name="Mine")).to_have_count(0)
        assert not [address for address in tab.asked if not address.startswith(locked.url)]


async def test_while_the_gateway_is_away_one_banner_says_so_and_goes_when_it_is_back(tab: Tab) -> None:
    await tab.page.goto("/")
    banner = tab.page.get_by_role("alert").filter(has_text="Disconnected, retrying")
    await tab.page.context.set_offline(True)
    for _ in range(3):
        await tab.page.evaluate("document.body.dispatchEvent(new CustomEvent('tick'))")
    await expect(banner).to_have_count(1, timeout=30_000)
    await expect(tab.page.locator(".toast")).to_have_count(0)
    await tab.page.context.set_offline(False)
    await expect(banner).to_have_count(0, timeout=30_000)
    # the browser tells the page which addresses did not answer meanwhile
    tab.complaints.clear()


@in_full("web/test_session.py, and one who signs in here")
async def test_what_is_filled_in_survives_a_session_that_ends_and_only_its_user_gets_it(
    open_tab: OpenTab, locked: Console
) -> None:
    admins = [locked.key(name, Scope.ADMIN).token for name in ("root", "other")]
    async with open_tab(locked.url) as tab:
        note, asked = tab.page.get_by_label("Note"), tab.page.get_by_label("User", exact=True)
        for first, then, kept in ((admins[0], admins[0], "a laptop"), (admins[0], admins[1], "")):
            await tab.sign_in(first)
            await tab.page.goto("/console/keys")
            await asked.fill("anne")
            await note.fill("a laptop")
            await tab.page.context.clear_cookies()
            await tab.page.get_by_role("button", name="Create key").press("Enter")
            await tab.page.wait_for_url("**/console/sign-in**")
            tab.expect_complaint("401")
            await tab.page.get_by_label("Key").fill(str(then))
            await tab.page.keyboard.press("Enter")
            await expect(note).to_have_value(kept)
            await expect(asked).to_have_value("anne" if kept else "")
