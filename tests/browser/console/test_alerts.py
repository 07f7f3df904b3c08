"""Alerts: what fires is seen on every page, a rule is tried, added, changed and silenced, and nothing breaks."""

from __future__ import annotations

from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab
from playwright.async_api import expect

from gateway.clock import utc_now
from gateway.signals.alert_rules import BUILT_IN, AlertGroup, Grouping
from gateway.signals.alerts import Alert, AlertStore


async def test_what_fires_is_counted_on_every_page_and_silenced_where_it_is_listed(
    open_tab: OpenTab, console: Console, axe: Axe
) -> None:
    alert = fires(console, "shop/prices", HOSTILE.replace("\x00", ""))
    async with open_tab(console.url) as tab:
        await tab.page.goto("/console/jobs")
        entry = tab.page.get_by_role("link", name="Alerts")
        await expect(entry).to_contain_text("1")
        await entry.click()
        row = tab.page.get_by_role("row", name="shop/prices")
        await expect(row.get_by_role("link", name="a crawl failed")).to_be_visible()
        await axe(tab)
        await row.get_by_label("Actions for shop/prices").click()
        await row.get_by_role("button", name="Silence shop/prices for an hour").click()
        await expect(tab.page.get_by_text("silenced", exact=True)).to_be_visible()
        await row.get_by_label("Actions for shop/prices").click()
        await row.get_by_role("button", name="End the silence of shop/prices").click()
        await expect(tab.page.get_by_text("silenced", exact=True)).to_have_count(0)
        await row.get_by_label("Actions for shop/prices").click()
        await row.get_by_role("button", name="Forget the alert of shop/prices").click()
        await tab.page.get_by_role("dialog").get_by_role("button", name="Forget").click()
        await expect(tab.page.get_by_text("No active alerts")).to_be_visible()
    assert AlertStore(console.database).get(alert) is None


async def test_a_rule_is_tried_added_changed_and_deleted(open_tab: OpenTab, console: Console, axe: Axe) -> None:
    async with open_tab(console.url) as tab:
        await tab.page.goto("/console/alerts")
        await expect(tab.page.get_by_text("Nobody gets a message about alerts yet")).to_be_visible()
        await tab.page.get_by_label("Name").fill("far fewer prices")
        await expect(tab.page.get_by_label("is less than")).to_be_hidden()
        await tab.page.get_by_label("Alert when").select_option("items")
        await expect(tab.page.get_by_label("For at least (seconds)")).to_be_hidden()
        await tab.page.get_by_label("is less than").fill("0.5")
        await tab.page.get_by_label("compared with").select_option("10")
        await tab.page.get_by_role("button", name="Preview").click()
        await expect(tab.page.get_by_text("Would not have fired")).to_be_visible()
        await axe(tab)
        await tab.page.get_by_role("button", name="Add rule").click()
        await expect(tab.page.get_by_role("heading", name="far fewer prices")).to_be_visible()
        said = "number of items, less than 0.5 times the median of the last 10 runs"
        await expect(tab.page.get_by_text(said)).to_be_visible()
        await tab.page.get_by_text("Who gets the message, and when").click()
        await tab.page.get_by_label("No messages from").fill("22:00")
        await tab.page.get_by_label("until").fill("07:00")
        await tab.page.get_by_role("button", name="Save").click()
        # said by the page that follows
        await expect(tab.page.get_by_text("Rule saved")).to_be_visible()
        await expect(tab.page.get_by_label("No messages from")).to_have_value("22:00")
        await axe(tab)
        await expect(tab.page.get_by_text("Rule saved")).to_be_hidden()
        await tab.page.get_by_label("No messages from").fill("")
        await tab.page.get_by_role("button", name="Save").click()
        await expect(tab.page.get_by_text("Rule saved")).to_be_visible()
        await expect(tab.page.get_by_label("No messages from")).to_have_value("")
        await tab.page.get_by_role("button", name="Silence this rule for an hour").click()
        await expect(tab.page.get_by_text("Alerts that are still active then are sent")).to_be_visible()
        await tab.page.get_by_role("button", name="End the silence of this rule").click()
        await tab.page.get_by_role("button", name="Delete").click()
        await tab.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(tab.page.get_by_text("far fewer prices")).to_have_count(0)


async def test_a_rule_without_a_bound_is_refused_beside_its_field(open_tab: OpenTab, console: Console) -> None:
    async with open_tab(console.url) as tab:
        await tab.page.goto("/console/alerts")
        await tab.page.get_by_label("Name").fill("much")
        await tab.page.get_by_label("Alert when").select_option("queue")
        await tab.page.get_by_role("button", name="Add rule").click()
        await expect(tab.page.get_by_text("needs one bound")).to_be_visible()
        tab.expect_complaint("422")


async def test_on_a_phone_a_rule_that_everybody_has_is_paused_and_reset(open_tab: OpenTab, console: Console) -> None:
    alert = fires(console, "shop/" + "x" * 200, "it crashed " * 50)
    async with open_tab(console.url, **PHONE) as tab:
        for page in ("/console/alerts", "/console/alerts/rules/crawl-failed"):
            await tab.page.goto(page)
            assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await tab.page.get_by_role("button", name="Preview").click()
        await expect(tab.page.get_by_text("Would not have fired")).to_be_visible()
        await tab.page.get_by_role("button", name="Pause").click()
        await expect(tab.page.get_by_role("button", name="Resume")).to_be_visible()
        await tab.page.get_by_role("button", name="Reset").click()
        await tab.page.get_by_role("dialog").get_by_role("button", name="Reset").click()
        await expect(tab.page.get_by_role("button", name="Pause")).to_be_visible()
    AlertStore(console.database).delete([alert])


def fires(console: Console, group: str, message: str) -> str:
    now = utc_now()
    made = Alert.new(BUILT_IN["crawl-failed"], "operator", AlertGroup(Grouping.SPIDER, group), now)
    AlertStore(console.database).save(made.fires(now, message, None, None).model_copy(update={"told": True}), None)
    return made.id
