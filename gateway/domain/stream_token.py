"""Stream tokens: for a browser's `EventSource`, which sends no headers. One opens the log of one job, for a minute.

They are signed with what is stored of the key that asked for them, so that nothing is kept of them, every gateway
process knows them, and they end with the key.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from gateway.domain.api_key import ApiKey

LIFETIME = timedelta(seconds=60)
_PREFIX = "st"


class StreamToken(NamedTuple):
    key_id: str
    #: Seconds since the epoch.
    expires: int
    signature: str

    def __str__(self) -> str:
        return f"{_PREFIX}_{self.key_id}_{self.expires}_{self.signature}"

    @property
    def expires_at(self) -> datetime:
        return datetime.fromtimestamp(self.expires, UTC)

    def opens(self, job_id: str, key: ApiKey, now: datetime) -> bool:
        expected = _signature(key, job_id, self.expires)
        return hmac.compare_digest(self.signature, expected) and now.timestamp() < self.expires


def sign(key: ApiKey, job_id: str, now: datetime) -> StreamToken:
    expires = int((now + LIFETIME).timestamp())
    return StreamToken(key.id, expires, _signature(key, job_id, expires))


def read_stream_token(text: str) -> StreamToken | None:
    """`None` for what is none of ours by its very shape."""
    prefix, _, rest = text.partition("_")
    parts = rest.split("_")
    if prefix != _PREFIX or len(parts) != 3 or not text.isascii() or not parts[1].isdigit():  # noqa: PLR2004 - as above
        return None
    # of as many digits as a time has: Python would take long over a million of them
    return StreamToken(parts[0], int(parts[1][:15]), parts[2])


def _signature(key: ApiKey, job_id: str, expires: int) -> str:
    return hmac.new(key.sha256.encode(), f"stream:{job_id}:{expires}".encode(), hashlib.sha256).hexdigest()
