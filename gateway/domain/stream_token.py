"""Stream tokens: for a browser's `EventSource`, which sends no headers. One opens the log of one job, for a minute.

They are signed with a secret that all gateways share, so that nothing is kept of them and every process knows them;
they end with the key that asked for them.
"""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from gateway.domain.api_key import ApiKey, Seal

LIFETIME = timedelta(seconds=60)
#: By which the clock of the gateway that gave one may be ahead of ours.
_AHEAD = timedelta(seconds=60)
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

    def opens(self, job_id: str, key: ApiKey, now: datetime, seal: Seal) -> bool:
        is_ours = hmac.compare_digest(self.signature, seal.sign(key, "stream", job_id, self.expires))
        return is_ours and now.timestamp() < self.expires <= (now + LIFETIME + _AHEAD).timestamp()


def sign(key: ApiKey, job_id: str, now: datetime, seal: Seal) -> StreamToken:
    expires = int((now + LIFETIME).timestamp())
    return StreamToken(key.id, expires, seal.sign(key, "stream", job_id, expires))


def read_stream_token(text: str) -> StreamToken | None:
    """`None` for what is none of ours by its very shape."""
    prefix, _, rest = text.partition("_")
    parts = rest.split("_")
    if prefix != _PREFIX or len(parts) != 3 or not text.isascii() or not parts[1].isdigit():  # noqa: PLR2004 - as above
        return None
    # of as many digits as a time has: Python would take long over a million of them
    return StreamToken(parts[0], int(parts[1][:15]), parts[2])
