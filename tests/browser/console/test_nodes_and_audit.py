"""The operator's pages of nodes, and of who did what."""

from __future__ import annotations

from datetime import timedelta

from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab
from forms import in_full
from playwright.async_api import expect

from gateway.access.audit import AuditEntry, AuditKind, AuditStore
from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.nodes.store import Load


async def test_a_node_is_drained_by_keyboard_and_gets_work_again(
    open_tab: OpenTab, console: Console, axe: Axe
) -> None:
    async with open_tab(console.url) as tab:
        await tab.page.goto("/console/nodes")
        await expect(tab.page.get_by_text("No nodes registered")).to_be_visible()
        console.node("n1", load=Load(0.31, 0.95))
        console.node("odd " + HOSTILE.replace("/", "").replace("\x07", "")[:60])
        await tab.page.reload()
        row = tab.page.get_by_role("row", name="n1")
        await expect(row.get_by_text("95 %")).to_be_visible()
        await expect(row.get_by_role("link", name="Scrapyd")).to_have_attribute("href", "/nodes/n1/scrapyd/")
        await axe(tab)
        await row.get_by_role("button", name="Drain n1").press("Enter")
        await tab.page.keyboard.press("Tab")
        await tab.page.keyboard.press("Enter")
        await expect(row.get_by_text("draining")).to_be_visible()
        await expect(row.get_by_text("waiting for a sign of life")).to_be_visible()
        console.node("n1")
        await tab.page.reload()
        await expect(row.get_by_text("Safe to stop.")).to_be_visible()
        await axe(tab)
        await row.get_by_role("button", name="Resume n1").press("Enter")
        await expect(row.get_by_role("button", name="Drain n1")).to_be_visible()
        odd = tab.page.get_by_role("row", name="odd")
        await odd.get_by_role("button", name="Drain").click()
        await tab.page.get_by_role("dialog").get_by_role("button", name="Drain").click()
        await expect(odd.get_by_text("draining")).to_be_visible()
    async with open_tab(console.url, **PHONE) as tab:
        await tab.page.goto("/console/nodes")
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@in_full("web/test_audit.py")
async def test_who_did_what_is_filtered_and_has_pages(open_tab: OpenTab, locked: Console, axe: Axe) -> None:
    now = utc_now()
    cancels = [
        AuditEntry(
            at=now - timedelta(minutes=minute), user_id="anne", method="POST", route="/jobs/{job_id}/cancel",
            resources={"job_id": "5f" * 16, "schedule_id": "0a" * 16, "name": HOSTILE[:200]}, status=200,
        )
        for minute in range(60)
    ]  # fmt: skip
    failed = AuditEntry(at=now, kind=AuditKind.LOGIN_FAILED, address="192.0.2.7", count=3, last_at=now)
    AuditStore(locked.database).insert([*cancels, failed])
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("root", Scope.ADMIN).token)
        await tab.page.goto("/console/audit")
        await expect(tab.page.get_by_text("3 wrong keys")).to_be_visible()
        changed = tab.page.get_by_role("link", name="0a0a").first
        await expect(changed).to_have_attribute("href", "/console/schedules/" + "0a" * 16)
        await axe(tab)
        await tab.page.get_by_label("User").fill("anne")
        await tab.page.keyboard.press("Enter")
        await expect(tab.page.get_by_text("3 wrong keys")).to_be_hidden()
        await expect(tab.page.get_by_role("row")).to_have_count(51)
        await tab.page.get_by_role("link", name="Older").click()
        await expect(tab.page.get_by_role("row")).to_have_count(11)
        await expect(tab.page.get_by_label("User")).to_have_value("anne")
        await tab.page.get_by_label("Time range").select_option("hour")
        await tab.page.get_by_label("Route").fill("/nowhere")
        await tab.page.get_by_role("button", name="Filter").press("Enter")
        await expect(tab.page.get_by_text("No matching entries")).to_be_visible()
        # nobody but an admin
        await tab.page.goto("/console/audit?user_id=anne")
        tab.expect_complaint("403")
        assert "192.0.2.7" not in await tab.page.content()
    async with open_tab(locked.url, **PHONE) as tab:
        await tab.sign_in(locked.key("anne").token)
        await expect(tab.page.get_by_role("link", name="Audit")).to_have_count(0)
        for path in ("/console/audit", "/console/nodes"):
            await tab.page.goto(path)
            tab.expect_complaint("403")
            assert "192.0.2.7" not in await tab.page.content()
