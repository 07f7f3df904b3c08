"""Makes keys."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from gateway.domain.api_key import ApiKey, Scope, Token, digest, new_token
from gateway.domain.clock import Clock, utc_now
from gateway.domain.site import OPERATOR
from gateway.storage.keys import KeyStore

#: Its id is the same whoever makes it: of several gateways that start at once, one does.
FIRST = "first"


class Issued(NamedTuple):
    key: ApiKey
    #: To be shown once: it cannot be had again.
    token: Token


class KeyIssue:
    def __init__(self, keys: KeyStore, clock: Clock = utc_now) -> None:
        self._keys = keys
        self._clock = clock

    def issue(
        self, user_id: str, scopes: Iterable[Scope], *, expires_at: datetime | None = None, note: str | None = None
    ) -> Issued:
        issued = self._made(new_token(), user_id, scopes)
        issued = issued._replace(key=issued.key._replace(expires_at=expires_at, note=note))
        self._keys.insert(issued.key)
        return issued

    def issue_first(self) -> Issued | None:
        """An admin's, if there is no key at all."""
        if self._keys.any():
            return None
        issued = self._made(new_token(FIRST), OPERATOR, [Scope.ADMIN])
        return issued if self._keys.insert(issued.key) else None

    def _made(self, token: Token, user_id: str, scopes: Iterable[Scope]) -> Issued:
        return Issued(ApiKey(token.key_id, user_id, frozenset(scopes), digest(token.secret), self._clock()), token)
