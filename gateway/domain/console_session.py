"""Sessions of the console: what a browser holds, as a cookie, once somebody has shown it a key.

As stream tokens are, they are signed with a secret that all gateways share: every process knows them without asking.
They end with their key. One that was ended before its time is noted on the key, which is read anyway.
"""

from __future__ import annotations

import hmac
import secrets
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from gateway.domain.api_key import ApiKey, Seal

#: None lasts longer, whatever it says of itself.
LONGEST = timedelta(days=30)
_PREFIX = "cs"
_ID_BYTES = 12


class ConsoleSession(NamedTuple):
    key_id: str
    id: str
    #: Seconds since the epoch.
    expires: int
    signature: str

    def __str__(self) -> str:
        return f"{_PREFIX}_{self.key_id}_{self.id}_{self.expires}_{self.signature}"

    @property
    def expires_at(self) -> datetime:
        return datetime.fromtimestamp(self.expires, UTC)

    def opens(self, key: ApiKey, now: datetime, seal: Seal) -> bool:
        """With this key, if the key itself is valid."""
        is_ours = hmac.compare_digest(self.signature, seal.sign(key, "session", self.id, self.expires))
        lasts = now.timestamp() < self.expires <= (now + LONGEST).timestamp()
        return is_ours and lasts and self.id not in key.ended_sessions

    def csrf_token(self, key: ApiKey, seal: Seal) -> str:
        """What a page of ours sends along with whatever changes something; no other page can read it."""
        return seal.sign(key, "csrf", self.id, self.expires)


def open_session(key: ApiKey, now: datetime, lifetime: timedelta, seal: Seal) -> ConsoleSession:
    """One that lasts for `lifetime`, but not longer than the key."""
    end = min(now + lifetime, key.expires_at or now + lifetime)
    identity, expires = secrets.token_hex(_ID_BYTES), int(end.timestamp())
    return ConsoleSession(key.id, identity, expires, seal.sign(key, "session", identity, expires))


def read_session(text: str) -> ConsoleSession | None:
    """`None` for what is none of ours by its very shape."""
    parts = text.split("_")
    if len(parts) != 5 or parts[0] != _PREFIX or not text.isascii() or not parts[3].isdigit():  # noqa: PLR2004 - as above
        return None
    # of as many digits as a time has: Python would take long over a million of them
    return ConsoleSession(parts[1], parts[2], int(parts[3][:15]), parts[4])
