"""What is sent to an endpoint of which only the address is known."""

from __future__ import annotations

import pytest

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
        "https://discord.com/api/webhooks/1/abc",
    ],
)
def test_all_others_are_sent_the_event_itself(url: str) -> None:
    assert EndpointFormat.of_address(url) is EndpointFormat.STANDARD
