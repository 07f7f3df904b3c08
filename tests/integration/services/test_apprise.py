"""Endpoints that are a service which Apprise knows: what they get, what stays secret, and what they cannot reach."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import psutil
import pytest
from conftest import Platform
from receivers import Receiver, answer, never
from stack import wait_until

from gateway.contract.public_address import parse_networks
from gateway.errors import InvalidRequestError
from gateway.signals import apprise_caller
from gateway.signals.apprise_call import LOCAL
from gateway.signals.apprise_caller import AppriseCaller
from gateway.signals.delivering import Webhooks
from gateway.signals.delivery_store import Delivery, DeliveryState
from gateway.signals.endpoints import Endpoint, EndpointFormat, secret_name
from gateway.signals.webhook_caller import WebhookCaller

Look = Callable[[], None]


@pytest.fixture
def look(platform: Platform) -> Iterator[Look]:
    worker: Webhooks = platform.webhooks(WebhookCaller())
    yield worker.look
    worker.close()


def make(platform: Platform, url: str) -> Endpoint:
    made, secret = platform.endpoints.make("ada", url, format=EndpointFormat.APPRISE)
    assert secret is None
    return made


def called(platform: Platform, endpoint: Endpoint, look: Look, state: DeliveryState) -> Delivery:
    """Send a test to the endpoint. Returns its delivery, once that has this state."""
    told = platform.endpoints.test(endpoint)

    def found() -> Delivery | None:
        look()
        known = platform.deliveries.get(told.id)
        return known if known is not None and known.calls and known.state is state else None

    return wait_until(found, what=f"a delivery that is {state}", timeout=60)


def test_a_message_has_a_title_and_a_text_and_its_address_is_sealed(platform: Platform, look: Look) -> None:
    with Receiver(answer()) as receiver:
        endpoint = make(platform, f"json://user:pass-word@127.0.0.1:{receiver.port}/hook")
        delivery = called(platform, endpoint, look, DeliveryState.DELIVERED)
        (call,) = receiver.calls
    told = json.loads(call.body)
    assert (told["title"], told["message"], told["type"]) == ("A test of this endpoint.",) * 2 + ("info",)
    assert call.headers["authorization"].startswith("Basic ")
    assert (endpoint.url, delivery.url) == ("json://…", "json://…")
    stored = json.dumps(
        [*platform.database["endpoints"].find(), *platform.database["deliveries"].find()], default=str
    )
    assert "pass-word" not in stored + json.dumps([*platform.database["webhook_secrets"].find()], default=str)


def test_a_service_that_refuses_says_why_and_is_called_again(platform: Platform, look: Look) -> None:
    with Receiver(answer(500)) as receiver:
        endpoint = make(platform, f"json://127.0.0.1:{receiver.port}/hook")
        delivery = called(platform, endpoint, look, DeliveryState.PENDING)
    assert "500" in (delivery.calls[-1].problem or "")
    assert delivery.due_at is not None


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "169.254.169.254"])
async def test_nothing_inside_is_reached_that_webhooks_may_not_reach(address: str) -> None:
    with Receiver(answer()) as receiver:
        for url in (
            f"json://{address}:{receiver.port}/",
            f"mailto://u:p@example.com?smtp={address}&port={receiver.port}",
        ):
            result = await AppriseCaller().send(url, json.dumps({"title": "t", "text": "t", "kind": "info"}))
            assert "is not a public address" in (result.problem or "")
        assert receiver.calls == []


async def test_one_that_never_answers_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apprise_caller, "SEND_SECONDS", 2.0)
    with Receiver(never) as receiver:
        url = f"json://127.0.0.1:{receiver.port}/"
        caller = AppriseCaller(parse_networks(["127.0.0.0/8"]))
        result = await caller.send(url, json.dumps({"title": "t", "text": "t", "kind": "info"}))
    assert result.problem is not None
    assert not [one for one in psutil.Process().children() if "apprise_call" in " ".join(one.cmdline())]


@pytest.mark.parametrize("url", ["nonsense", "https//x", *(f"{scheme}://x" for scheme in sorted(LOCAL))])
def test_an_address_that_is_no_service_is_refused(platform: Platform, url: str) -> None:
    with pytest.raises(InvalidRequestError, match="no address that Apprise knows"):
        make(platform, url)


def test_another_address_replaces_it_and_the_format_stays(platform: Platform) -> None:
    endpoint = make(platform, "json://127.0.0.1/one")
    changed = platform.endpoints.change(endpoint, {"url": "tgram://123456789:abcdefg_hijklmnop/12315544/"})
    assert changed.url == "tgram://…"
    assert platform.webhook_secrets.valid(secret_name(endpoint.id)) == [
        "tgram://123456789:abcdefg_hijklmnop/12315544/"
    ]
    with pytest.raises(InvalidRequestError, match="format"):
        platform.endpoints.change(endpoint, {"format": "slack"})
    platform.endpoints.delete(changed)
    assert platform.webhook_secrets.valid(secret_name(endpoint.id)) == []
