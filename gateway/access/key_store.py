"""The `keys` collection. Keys are revoked, never removed: a database that had keys once does not open again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from attrs import define
from pydantic import TypeAdapter
from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.access.keys import ApiKey, Scope, Token, digest, new_token
from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.sites.site import OPERATOR
from gateway.stores.documents import Documents
from gateway.stores.mongo import Document

#: A key's last use is noted anew after that: it is for finding keys that nobody needs, not for an audit.
USE_NOTED_EVERY = timedelta(minutes=10)
#: Sessions noted as ended of one key. Beyond that those that would end soonest are forgotten, and last until then.
MOST_ENDED = 1000
_KEY = TypeAdapter(ApiKey)
_APART = frozenset({"id", "ended_sessions"})


class KeyStore:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._keys = database["keys"]
        self._documents = Documents(self._keys, read_key)
        self._clock = clock

    @state_change("keys.insert")
    def insert(self, key: ApiKey) -> bool:
        """Whether there was none with this id."""
        document = {name: value for name, value in key._asdict().items() if name not in _APART and value is not None}
        try:
            self._keys.insert_one({**document, "_id": key.id, "scopes": sorted(key.scopes)})
        except DuplicateKeyError:
            return False
        return True

    def any(self) -> bool:
        """Also revoked and expired ones."""
        return self._keys.find_one({}, {"_id": 1}) is not None

    def all(self) -> list[ApiKey]:
        """The oldest first."""
        return self._documents.many(self._keys.find().sort([("created_at", ASCENDING)]))

    def get(self, key_id: str) -> ApiKey | None:
        """`None` also for one that cannot be read: it opens nothing."""
        return self._documents.optional(self._keys.find_one({"_id": key_id}))

    def use(self, key_id: str) -> ApiKey | None:
        """The key, and its use noted, if it is valid."""
        key, now = self.get(key_id), self._clock()
        if key and key.is_valid(now) and (key.last_used_at is None or now - key.last_used_at >= USE_NOTED_EVERY):
            self._note_use(key_id, now)
        return key

    @state_change("keys.revoke")
    def revoke(self, key_id: str) -> ApiKey | None:
        """The key, from now on good for nothing; `None` if there is none."""
        unrevoked = {"_id": key_id, "revoked_at": {"$exists": False}}
        self._keys.update_one(unrevoked, {"$set": {"revoked_at": self._clock()}})
        return self.get(key_id)

    @state_change("keys.end_session")
    def end_session(self, key_id: str, session_id: str, until: datetime) -> None:
        """Note until when it would have lasted; those that have run out by now are left out."""
        document = self._keys.find_one({"_id": key_id}, {"ended_sessions": 1}) or {}
        noted: dict[str, datetime] = document.get("ended_sessions", {})
        lasting = sorted((end, name) for name, end in noted.items() if end > self._clock())
        kept = {name for _, name in lasting[-(MOST_ENDED - 1) :]}
        change: Document = {"$set": {f"ended_sessions.{session_id}": until}}
        if gone := {f"ended_sessions.{name}": "" for name in noted if name not in kept | {session_id}}:
            change["$unset"] = gone
        self._keys.update_one({"_id": key_id}, change)

    @state_change("keys.note_use")
    def _note_use(self, key_id: str, now: datetime) -> None:
        self._keys.update_one({"_id": key_id}, {"$set": {"last_used_at": now}})


def read_key(document: Document) -> ApiKey:
    known = {name: document[name] for name in ApiKey._fields if name in document}
    return _KEY.validate_python(
        {**known, "id": document["_id"], "ended_sessions": [*document.get("ended_sessions", ())]}
    )


# Whose a job or a schedule is; nothing else of it is read
class OwnerStore:
    def __init__(self, database: Database[Document]) -> None:
        self._collections = database["jobs"], database["schedules"]

    def of(self, ids: Collection[str]) -> dict[str, set[str]]:
        """By id, for those of `ids` that are there. More than one only if a job and a schedule share an id."""
        owners: dict[str, set[str]] = {}
        for collection in self._collections:
            for document in collection.find({"_id": {"$in": list(ids)}}, {"user_id": 1}):
                owners.setdefault(document["_id"], set()).add(document["user_id"])
        return owners


#: Its id is the same whoever makes it: of several gateways that start at once, one does.
FIRST = "first"


class Issued(NamedTuple):
    key: ApiKey
    #: To be shown once: it cannot be had again.
    token: Token


@define(eq=False, repr=False, slots=False)
class KeyIssue:
    _keys: KeyStore
    _clock: Clock = utc_now

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
