"""Keys are made, shown once, and revoked."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx2
from browser.console.platform import Console, opened
from browser.console.tabs import PHONE, Axe, OpenTab
from forms import in_full
from playwright.async_api import expect

from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.settings import Settings


def who(console: Console, key: str) -> httpx2.Response:
    return console.http.get("/session", headers={"Authorization": f"Bearer {key}"})


def _as(console: Console) -> dict[str, str]:
    return {"Authorization": f"Bearer {console.key('reader', Scope.ADMIN).token}"}


async def test_a_key_is_made_by_keyboard_shown_once_and_revoked(open_tab: OpenTab, locked: Console, axe: Axe) -> None:
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("root", Scope.ADMIN).token)
        await tab.page.goto("/console/keys")
        await axe(tab)
        await tab.page.get_by_label("User", exact=True).fill("not a user")
        await tab.page.get_by_label("Note").fill("<b>laptop</b>")
        await tab.page.get_by_role("button", name="Create key").press("Enter")
        await expect(tab.page.get_by_label("User", exact=True)).to_be_focused()
        tab.expect_complaint("422")
        await tab.page.get_by_label("User", exact=True).fill("anne")
        await tab.page.keyboard.press("Enter")
        shown = tab.page.locator("#key-text")
        await expect(shown).to_contain_text("db_")
        await expect(tab.page.get_by_role("heading", name="New key")).to_be_focused()
        key = await shown.inner_text()
        assert who(locked, key).json()["user_id"] == "anne"
        row = tab.page.get_by_role("row", name="anne")
        await expect(row.get_by_text("<b>laptop</b>")).to_be_visible()
        await axe(tab)
        await tab.page.reload()
        assert key not in await tab.page.content()
        await row.get_by_role("button", name="Revoke").press("Enter")
        await tab.page.keyboard.press("Tab")
        await tab.page.keyboard.press("Enter")
        await expect(row.get_by_text("revoked")).to_be_visible()
    async with open_tab(locked.url, **PHONE) as tab:
        await tab.sign_in(locked.key("bert").token)
        await expect(tab.page.get_by_role("link", name="Keys")).to_have_count(0)
        await tab.page.goto("/console/keys")
        tab.expect_complaint("403")
        assert "anne" not in await tab.page.content()


async def test_the_link_of_a_new_key_leads_a_colleague_to_all_crawls(open_tab: OpenTab, locked: Console) -> None:
    job = locked.job(user_id="bert")
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("root", Scope.ADMIN).token)
        await tab.page.goto("/console/keys")
        await tab.page.get_by_label("User", exact=True).fill("carol")
        await tab.page.get_by_label("Scope").select_option('["read_all"]')
        await tab.page.get_by_role("button", name="Create key").press("Enter")
        await expect(tab.page.locator("#key-link")).to_contain_text("#db_")
        link = await tab.page.locator("#key-link").inner_text()
        says = "Send this link to carol: after a click on “Sign in”, carol sees the jobs, items and logs of all users"
        await expect(tab.page.locator("#key-says")).to_contain_text(says)
    async with open_tab(locked.url) as tab:
        await tab.page.goto(link)
        await expect(tab.page).to_have_url(f"{locked.url}/console/sign-in")
        await expect(tab.page.get_by_role("button", name="Sign in")).to_be_focused()
        await tab.page.keyboard.press("Enter")
        await expect(tab.page.get_by_text("Signed in as carol")).to_be_visible()
        await tab.page.goto(f"/console/jobs/{job.id}/log")
        await expect(tab.page.get_by_text("by bert").first).to_be_visible()
        assert all("db_" not in address for address in tab.asked)


async def test_a_key_for_a_colleague_is_filled_in_by_one_click(open_tab: OpenTab, locked: Console, axe: Axe) -> None:
    locked.spider("prices", "shop")
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("root", Scope.ADMIN).token)
        await tab.page.goto("/console/keys")
        await tab.page.get_by_role("button", name="Let a colleague read").press("Enter")
        await expect(tab.page.get_by_label("User", exact=True)).to_be_focused()
        await expect(tab.page.get_by_label("Scope")).to_have_value('["read_all"]')
        # all projects are all, also those of tomorrow
        await expect(tab.page.get_by_label("Projects", exact=True)).to_have_value("all")
        await expect(tab.page.get_by_role("checkbox", name="shop")).to_be_hidden()
        await axe(tab)
        await tab.page.keyboard.type("emma")
        await tab.page.keyboard.press("Enter")
        row = tab.page.get_by_role("row", name="emma")
        await expect(row).to_contain_text("read_all")
    (key,) = (one for one in locked.http.get("/keys", headers=_as(locked)).json()["keys"] if one["user_id"] == "emma")
    assert key["projects"] == []
    lasts = datetime.fromisoformat(key["expires_at"]) - utc_now()
    assert timedelta(days=89) < lasts < timedelta(days=91)


async def test_a_key_for_a_project_shows_its_pages_alone(open_tab: OpenTab, locked: Console, axe: Axe) -> None:
    shown, other = locked.job(user_id="bert", project="shop"), locked.job(user_id="bert", project="news")
    locked.spider("prices", "shop")
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("root", Scope.ADMIN).token)
        await tab.page.goto("/console/keys")
        await tab.page.get_by_label("User", exact=True).fill("dora")
        box = tab.page.get_by_role("checkbox", name="shop")
        # only a key that reads can be for some projects, and only one that crawls can have a budget
        await expect(box).to_be_hidden()
        await expect(tab.page.locator("summary", has_text="Daily budget")).to_be_visible()
        await tab.page.get_by_label("Scope").select_option('["read_all"]')
        await expect(tab.page.locator("summary", has_text="Daily budget")).to_be_hidden()
        await tab.page.get_by_label("Projects", exact=True).select_option("some")
        # none would be all
        await tab.page.get_by_role("button", name="Create key").press("Enter")
        assert await tab.page.evaluate("document.querySelector('#key-projects [type=checkbox]').validationMessage")
        await box.check()
        await axe(tab)
        await tab.page.get_by_role("button", name="Create key").press("Enter")
        await expect(tab.page.locator("#key-text")).to_contain_text("db_")
        await expect(tab.page.locator("#key-says")).to_contain_text(
            "dora sees the jobs, items and logs of the project shop"
        )
        await expect(box).to_be_hidden()
        key = await tab.page.locator("#key-text").inner_text()
        await expect(tab.page.get_by_role("row", name="dora")).to_contain_text("shop")
    async with open_tab(locked.url) as tab:
        await tab.sign_in(key)
        await expect(tab.page.get_by_text("Signed in as dora, who sees shop")).to_be_visible()
        await expect(tab.page.get_by_role("link", name="Alerts")).to_have_count(0)
        await tab.page.goto("/console/jobs")
        await expect(tab.page.locator(f'a[href*="{shown.id}"]').first).to_be_visible()
        assert other.id not in await tab.page.content()
        await axe(tab)
        await tab.page.goto("/console/alerts")
        await expect(tab.page.get_by_text("this key can only read the project 'shop'")).to_be_visible()
        tab.expect_complaint("403")


@in_full("web/test_keys.py, and a key that is made here")
async def test_without_keys_the_page_says_what_the_first_one_changes(
    open_tab: OpenTab, console: Console, axe: Axe
) -> None:
    async with open_tab(console.url) as tab:
        await tab.page.goto("/console/keys")
        await expect(tab.page.get_by_text("Once the first key exists")).to_be_visible()
        await axe(tab)


@in_full("web/test_keys.py, and a key that is made here")
async def test_the_first_key_signs_its_browser_in_and_the_banner_goes(
    open_tab: OpenTab, serve: Any, settings: Settings
) -> None:
    with opened(serve, settings, "first-key") as console:
        async with open_tab(console.url) as tab:
            await tab.page.goto("/console/keys")
            banner = tab.page.get_by_text("There are no keys")
            await expect(banner).to_be_visible()
            await tab.page.get_by_label("User", exact=True).fill("root")
            await tab.page.get_by_role("button", name="Create key").press("Enter")
            await expect(banner).to_have_count(0)
            await expect(tab.page.get_by_role("row", name="root")).to_be_visible()
            await expect(tab.page.locator("#key-text")).to_contain_text("db_")
            await expect(tab.page.get_by_label("Scope", exact=True)).to_have_value('["crawl"]')
            # with the session's token the page goes on, and so does every other
            await tab.page.get_by_label("User", exact=True).fill("carl")
            await tab.page.get_by_label("Scope", exact=True).select_option(
                label="See the jobs, items and logs of all users (read_all)"
            )
            await tab.page.get_by_role("button", name="Create key").press("Enter")
            await expect(tab.page.get_by_role("row", name="carl")).to_contain_text("read_all")
            await tab.page.goto("/")
            await expect(tab.page.get_by_text("Signed in as")).to_be_visible()
