"""An endpoint is added, tried, paused and told again what it has missed; its page says what it answered."""

from __future__ import annotations

from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from playwright.async_api import Locator, expect

from gateway.clock import utc_now
from gateway.signals.delivery_store import Delivery, DeliveryState, DeliveryStore, DeliveryTry
from gateway.signals.endpoints import Endpoint, EndpointStore


async def test_an_endpoint_is_added_and_what_it_was_told_is_read_and_sent_again(
    open_tab: OpenTab, console: Console, axe: Axe
) -> None:
    async with open_tab(console.url) as tab:
        await tab.page.goto("/console/endpoints")
        await expect(tab.page.get_by_text("No endpoints yet")).to_be_visible()
        await axe(tab)
        await tab.page.get_by_label("URL").fill("https://hooks.example.com/crawls")
        await expect(tab.page.get_by_label("job.failed")).to_be_checked()
        await tab.page.get_by_label("job.partial").uncheck()
        await tab.page.get_by_label("run.held").check()
        await tab.page.get_by_text("Only some crawls").click()
        await tab.page.get_by_label("Projects").fill("shop\nnews")
        await tab.page.get_by_role("button", name="Add endpoint").click()
        await expect(tab.page.get_by_text("No deliveries yet")).to_be_visible()
        await expect(chosen(tab)).to_have_count(2)
        await expect(tab.page.get_by_label("run.held")).to_be_checked()
        await expect(tab.page.get_by_label("Projects")).to_have_value("shop\nnews")
        await tab.page.get_by_text("Show secret").click()
        await expect(tab.page.get_by_text("whsec_")).to_be_visible()
        told(console, tab.page.url.rsplit("/", 1)[1])
        await tab.page.reload()
        row = tab.page.get_by_role("row", name="job.failed")
        await expect(row.get_by_text("answered 503")).to_be_visible()
        await expect(row.get_by_text("refused", exact=True)).to_be_visible()
        await axe(tab)
        await row.get_by_role("button", name="Resend job.failed").press("Enter")
        await expect(row.get_by_text("pending")).to_be_visible()
        await tab.page.get_by_role("button", name="Pause").click()
        await expect(tab.page.get_by_role("button", name="Resume")).to_be_visible()
        await tab.page.get_by_role("button", name="Resume").click()
        await tab.page.get_by_role("button", name="Send test").click()
        await expect(tab.page.get_by_role("row", name="endpoint.test")).to_be_visible()
        made = tab.page.url.rsplit("/", 1)[1]
    EndpointStore(console.database).delete(made)


async def test_on_a_phone_an_endpoint_is_deleted_with_its_deliveries(open_tab: OpenTab, console: Console) -> None:
    now = utc_now()
    made = Endpoint(id="7d" * 16, user_id="operator", url="https://hooks.example.com/" + "x" * 300, created_at=now)
    EndpointStore(console.database).insert(made)
    told(console, made.id)
    async with open_tab(console.url, **PHONE) as tab:
        for page in ("/console/endpoints", f"/console/endpoints/{made.id}"):
            await tab.page.goto(page)
            assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await tab.page.get_by_role("button", name="Delete").click()
        await tab.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(tab.page.get_by_text("No endpoints yet")).to_be_visible()
    assert not DeliveryStore(console.database).page([{"endpoint_id": made.id}], 1, None)[0]


async def test_an_address_inside_is_refused_beside_its_field(open_tab: OpenTab, console: Console) -> None:
    async with open_tab(console.url) as tab:
        await tab.page.goto("/console/endpoints")
        await tab.page.get_by_label("URL").fill("http://169.254.169.254/")
        await tab.page.get_by_role("button", name="Add endpoint").click()
        await expect(tab.page.get_by_text("is not a public address")).to_be_visible()
        await expect(tab.page.get_by_label("URL")).to_have_attribute("aria-invalid", "true")
        tab.expect_complaint("403")


async def test_what_is_emptied_stays_empty(open_tab: OpenTab, console: Console) -> None:
    async with open_tab(console.url) as tab:
        await tab.page.goto("/console/endpoints")
        await tab.page.get_by_label("URL").fill("https://hooks.example.com/crawls")
        await tab.page.get_by_label("Description").fill("the shop's channel")
        await tab.page.get_by_label("job.partial").uncheck()
        await tab.page.get_by_role("button", name="Add endpoint").click()
        await expect(tab.page.get_by_label("Description")).to_have_value("the shop's channel")
        await expect(tab.page.get_by_text("No deliveries yet")).to_be_visible()
        await tab.page.get_by_label("Description").fill("")
        await tab.page.get_by_label("job.failed").uncheck()
        await tab.page.get_by_role("button", name="Save").click()
        await expect(tab.page.get_by_text("Endpoint saved")).to_be_visible()
        await tab.page.reload()
        await expect(tab.page.get_by_label("Description")).to_have_value("")
        await expect(chosen(tab)).to_have_count(0)
        await tab.page.get_by_role("button", name="Delete").click()
        await tab.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(tab.page.get_by_text("No endpoints yet")).to_be_visible()


async def test_a_channel_of_slack_needs_its_url_alone_and_its_answer_is_seen_as_it_comes(
    open_tab: OpenTab, console: Console
) -> None:
    async with open_tab(console.url) as tab:
        await tab.page.goto("/console/endpoints")
        await tab.page.get_by_label("URL").fill("https://hooks.slack.com/services/T0001/B0001/abc")
        await tab.page.get_by_role("button", name="Add endpoint").click()
        await expect(tab.page.get_by_label("Format")).to_have_value("slack")
        await expect(tab.page.get_by_text("all users' crawls")).to_be_visible()
        await tab.page.get_by_role("button", name="Send test").click()
        row = tab.page.get_by_role("row", name="endpoint.test")
        await expect(row.get_by_text("not called")).to_be_visible()
        made = tab.page.url.rsplit("/", 1)[1]
        answered(console, made)
        await expect(row.get_by_text("200 in 0.1 s")).to_be_visible()
        await expect(row.get_by_text("delivered")).to_be_visible()
    EndpointStore(console.database).delete(made)


def chosen(tab: Tab) -> Locator:
    return tab.page.get_by_role("group", name="Events").get_by_role("checkbox", checked=True)


def answered(console: Console, endpoint_id: str) -> None:
    """The one delivery of the endpoint."""
    tried = DeliveryTry(at=utc_now(), seconds=0.1, status=200, answer="ok")
    over = {"state": DeliveryState.DELIVERED.value, "tries": 1, "calls": [tried.model_dump(exclude_none=True)]}
    console.database["deliveries"].update_one({"endpoint_id": endpoint_id}, {"$set": over, "$unset": {"due_at": ""}})


def told(console: Console, endpoint_id: str) -> None:
    """One call, which was answered with what nobody should be harmed by."""
    now = utc_now()
    tried = DeliveryTry(at=now, seconds=0.1, status=503, problem="answered 503", answer=HOSTILE.replace("\x00", ""))
    facts = {"user_id": "operator", "type": "job.failed", "body": "{}", "url": "https://hooks.example.com/crawls"}
    made = Delivery.new("msg_1", endpoint_id, now, endpoint_id=endpoint_id, job_id="5f" * 16, **facts)
    over = {"state": DeliveryState.REFUSED, "due_at": None, "tries": 1, "calls": [tried]}
    DeliveryStore(console.database).add([made.model_copy(update=over)])
