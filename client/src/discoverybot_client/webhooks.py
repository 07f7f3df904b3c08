"""Calls of webhooks and endpoints, which are signed as Standard Webhooks has it (https://www.standardwebhooks.com)."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Mapping
from typing import cast

from discoverybot_client.errors import WebhookError
from discoverybot_client.events import Call

#: Seconds that a call may be old, or the clocks may differ.
TOLERANCE = 300.0
_PREFIX = "whsec_"
#: Bytes that a secret has at least: others can guess a shorter one.
_LEAST = 16


def verify(
    headers: Mapping[str, str],
    body: bytes | str,
    secret: str,
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
) -> Call:
    """What the call says. Calls of endpoints have `type`, `timestamp` and `data`, and those of a crawl's
    `webhook_url` have `event`: by these type checkers know what else there is. A later release may have others, too.
    `body` is as it came, not parsed and written again.

    A call may come twice: `webhook-id` is the same then. Raises `WebhookError` unless whoever has the secret has made
    this very call within `tolerance` seconds, and `ValueError` for a secret that is none.
    """
    key = _key(secret)
    raw = body.encode() if isinstance(body, str) else body
    found = {name.lower(): value for name, value in headers.items()}
    try:
        identity, sent_at, signatures = (found[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
        moment = int(sent_at)
    except (KeyError, ValueError):
        raise WebhookError("the call has no webhook-id, webhook-timestamp and webhook-signature") from None
    if abs((time.time() if now is None else now) - moment) > tolerance:
        raise WebhookError(f"the call is of another time: {moment}")
    signed = base64.b64encode(hmac.digest(key, f"{identity}.{sent_at}.".encode() + raw, "sha256"))
    offered = (one.partition(",") for one in signatures.split())
    # after its secret was renewed, a sender signs with the old and the new one for a while
    if not any(version == "v1" and hmac.compare_digest(value.encode(), signed) for version, _, value in offered):
        raise WebhookError("the signature is not that of this secret and this body")
    try:
        told = json.loads(raw)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise WebhookError("the body is no object")
    return cast("Call", told)


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        key = b""
    if len(key) < _LEAST:
        raise ValueError("the secret is not as the gateway has told it: whsec_ and base64")
    return key
