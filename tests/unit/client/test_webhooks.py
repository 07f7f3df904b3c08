"""What is signed by the gateway, and by others as the standard has it, is verified; nothing else is."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import standardwebhooks

from discoverybot_client import WebhookError, verify
from gateway.signals.signatures import new_secret, signed_headers

BODY = json.dumps(
    {"type": "job.finished", "timestamp": "2027-06-01T09:00:00.000Z", "data": {"job_id": "5f"}}
).encode()
SENT = datetime(2027, 6, 1, 9, tzinfo=UTC)
NOW = SENT.timestamp()
SECRET = new_secret()


def by_gateway() -> dict[str, str]:
    return dict(signed_headers("msg_1", SENT, BODY, [SECRET]))


def by_the_standards_library() -> dict[str, str]:
    signature = standardwebhooks.Webhook(SECRET).sign("msg_1", SENT, BODY.decode())
    return {"Webhook-Id": "msg_1", "Webhook-Timestamp": str(int(NOW)), "Webhook-Signature": signature}


@pytest.mark.parametrize("signed", [by_gateway, by_the_standards_library])
def test_what_is_signed_is_read(signed: Callable[[], dict[str, str]]) -> None:
    for body in (BODY, BODY.decode()):
        assert verify(signed(), body, SECRET, now=NOW + 299)["data"] == {"job_id": "5f"}


@pytest.mark.parametrize("told", [{"type": "job.newer", "data": []}, {"event": "job.newer"}, {}])
def test_what_a_later_release_says_is_read_as_it_came(told: dict[str, object]) -> None:
    body = json.dumps(told).encode()
    assert verify(dict(signed_headers("msg_1", SENT, body, [SECRET])), body, SECRET, now=NOW) == told


def test_while_a_secret_is_exchanged_both_are_good() -> None:
    newer = new_secret()
    headers = dict(signed_headers("msg_1", SENT, BODY, [newer, SECRET]))
    for secret in (newer, SECRET):
        assert verify(headers, BODY, secret, now=NOW)["type"] == "job.finished"


@pytest.mark.parametrize(
    ("headers", "body", "now"),
    [
        ({}, BODY, NOW),
        ({"webhook-id": "msg_2"}, BODY, NOW),
        ({"webhook-timestamp": str(int(NOW) + 1)}, BODY, NOW),
        ({"webhook-timestamp": "now"}, BODY, NOW),
        ({"webhook-signature": "v1,"}, BODY, NOW),
        ({"webhook-signature": "v1a,é"}, BODY, NOW),
        ({}, BODY.replace(b"5f", b"6f"), NOW),
        ({}, BODY, NOW + 301),
        ({}, BODY, NOW - 301),
    ],
)
def test_what_is_not_is_refused(headers: dict[str, str], body: bytes, now: float) -> None:
    sent = {**by_gateway(), **headers} if headers or body != BODY or now != NOW else {}
    with pytest.raises(WebhookError):
        verify(sent, body, SECRET, now=now)


def test_another_secret_is_refused() -> None:
    with pytest.raises(WebhookError, match="not that of this secret"):
        verify(by_gateway(), BODY, new_secret(), now=NOW)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_é", "whsec_c2hvcnQ="])
def test_a_secret_that_is_none_verifies_nothing(secret: str) -> None:
    key = base64.b64decode("c2hvcnQ=" if secret.endswith("=") else "")
    signed = base64.b64encode(hmac.digest(key, f"msg_1.{int(NOW)}.".encode() + BODY, "sha256")).decode()
    for headers in (by_gateway(), {**by_gateway(), "webhook-signature": f"v1,{signed}"}):
        with pytest.raises(ValueError, match="whsec_"):
            verify(headers, BODY, secret, now=NOW)
