"""What pages of other origins may do that the operator lists (`GATEWAY_CORS_ORIGINS`): all that a key allows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

#: What a client may read besides the body.
_EXPOSED = (
    *("X-Request-ID", "Location", "Retry-After", "WWW-Authenticate", "Content-Disposition"),
    *("RateLimit", "RateLimit-Policy"),
)
#: What it may send besides what every page may.
_TAKEN = ("Authorization", "Last-Event-ID", "Idempotency-Key", "X-Request-ID")


def cors_rules(origins: Collection[str]) -> dict[str, Any]:
    """Arguments of Starlette's `CORSMiddleware`. Without credentials: the console's cookie is for our own pages."""
    return {
        "allow_origins": origins,
        "allow_methods": ("GET", "POST", "PATCH", "DELETE"),
        "allow_headers": _TAKEN,
        "expose_headers": _EXPOSED,
    }
