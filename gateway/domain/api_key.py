"""Keys: `db_<id>_<secret>`, of which the secret's SHA-256 alone is kept; and what whoever shows one may do."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from gateway.domain.errors import NotYourUserError

_PREFIX = "db"
_ID_BYTES, _SECRET_BYTES = 6, 24
#: Compared with where there is no such key, so that this takes no less time.
_NOBODYS = "0" * 64


class Scope(StrEnum):
    """What a key is for. Each takes in those before it."""

    READ = "read"  # its user's crawls, and what there is to be crawled
    CRAWL = "crawl"  # and to make, change and end them
    ADMIN = "admin"  # everything, for every user


_ORDER = tuple(Scope)


class ApiKey(NamedTuple):
    id: str
    user_id: str
    scopes: frozenset[Scope]
    #: Of the secret, in hex.
    sha256: str
    created_at: datetime
    note: str | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    #: To within some minutes.
    last_used_at: datetime | None = None
    #: Ids of sessions that would still last, but were ended.
    ended_sessions: frozenset[str] = frozenset()

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def allows(self, scope: Scope) -> bool:
        return any(_ORDER.index(held) >= _ORDER.index(scope) for held in self.scopes)


class Token(NamedTuple):
    """What a client shows."""

    key_id: str
    secret: str

    def __str__(self) -> str:
        return f"{_PREFIX}_{self.key_id}_{self.secret}"

    def opens(self, key: ApiKey | None) -> bool:
        """In constant time."""
        return hmac.compare_digest(digest(self.secret), key.sha256 if key else _NOBODYS) and key is not None


class Caller(NamedTuple):
    """On whose behalf a request is carried out."""

    #: Whose things it sees; `None` for those of all.
    user_id: str | None
    scopes: frozenset[Scope]
    key: ApiKey | None = None

    @classmethod
    def with_key(cls, key: ApiKey) -> Caller:
        held = frozenset(scope for scope in Scope if key.allows(scope))
        return cls(None if Scope.ADMIN in held else key.user_id, held, key)

    def may_see(self, user_id: str) -> bool:
        return self.user_id in {None, user_id}

    def acting_for(self, user_id: str) -> str:
        """`user_id`, if it is the caller's. Raises `NotYourUserError`."""
        if not self.may_see(user_id):
            raise NotYourUserError(user_id)
        return user_id

    def only(self, user_id: str | None) -> str | None:
        """Whose things a list holds where this filter is asked for; `None` for those of all.

        Raises `NotYourUserError`.
        """
        return self.user_id if user_id is None else self.acting_for(user_id)


#: While there are no keys, everybody who can reach the gateway is its operator.
ANYBODY = Caller(None, frozenset(Scope))


class Seal:
    """What the gateways sign sessions and stream tokens with. It stands in no database: what one learns there of keys
    opens nothing.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def sign(self, key: ApiKey, *parts: object) -> str:
        """Worthless once the key's own secret is another."""
        return hmac.new(self._secret, repr((key.id, key.sha256, *parts)).encode(), hashlib.sha256).hexdigest()


def new_token(key_id: str | None = None) -> Token:
    return Token(key_id or secrets.token_hex(_ID_BYTES), secrets.token_hex(_SECRET_BYTES))


def read_token(text: str) -> Token | None:
    """`None` for what is no key of ours by its very shape."""
    parts = text.split("_")
    if len(parts) != 3 or parts[0] != _PREFIX or not text.isascii():  # noqa: PLR2004 - prefix, id, secret
        return None
    return Token(parts[1], parts[2])


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
