"""What is sent to an endpoint of which only the address is known."""

from __future__ import annotations

import pytest

from gateway.errors import InvalidRequestError
from gateway.signals.endpoints import EndpointFormat


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.slack.com/services/T0001/B0001/aB3",
        "https://HOOKS.slack.com/triggers/T0001/1/abc",
        "https://hooks.slack-gov.com/services/T0001/B0001/abc",
        "http://127.0.0.1:8080/services/T0001/B0001/abc",
        "https://discord.com/api/webhooks/1/abc/slack",
        "https://ptb.discord.com/api/webhooks/1/abc/slack",
        "https://chat.example.com/hooks/xkbg8ws5gfn3iqpoiqyz5h1cqe",
        "https://example.com/mattermost/hooks/xkbg8ws5gfn3iqpoiqyz5h1cqe",
        "https://rocket.example.com/hooks/64f0c8e3a9d1b4c7e8f2a6b5/QzHkD3XbZ2n8sYwLq5Rk7Tj9Vm4Pc6Ff",
    ],
)
def test_what_takes_a_sentence_as_slack_does_is_known_by_its_address(url: str) -> None:
    assert EndpointFormat.of_address(url) is EndpointFormat.SLACK


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com/crawls",
        "https://example.com/?to=https://hooks.slack.com/services/T0001/B0001/abc",
        "https://hooks.slack.com.example.com/",
        "https://example.com/hooks.slack.com/",
        "https://example.com/services/teams/bots/abc/more",
        "https://example.com/hooks/crawls",
    ],
)
def test_all_others_are_sent_the_event_itself(url: str) -> None:
    assert EndpointFormat.of_address(url) is EndpointFormat.STANDARD


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://discord.com/api/webhooks/1/abc", "with /slack at its end"),
        ("https://acme.webhook.office.com/webhookb2/1@2/IncomingWebhook/3/4", "workflows://"),
        (
            "https://prod-1.westeurope.logic.azure.com:443/workflows/1/triggers/manual/paths/invoke?sig=1",
            "workflows://",
        ),
    ],
)
def test_a_chat_that_would_refuse_our_messages_is_answered_with_what_to_do(url: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said) as refused:
        EndpointFormat.of_address(url)
    assert refused.value.detail["field"] == "url"
