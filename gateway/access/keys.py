"""API keys, and what their owners may do. A key's token is `db_<id>_<secret>`; only the secret's SHA-256 is
stored.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from gateway.errors import InvalidRequestError, NotYourUserError
from gateway.jobs.job import KeyBudget

_KEY_PREFIX = "db"
_ID_BYTES, _SECRET_BYTES = 6, 24
#: Compared with a secret's hash if there is no key with the id, so that the comparison takes the same time.
_NOBODYS = "0" * 64


class Scope(StrEnum):
    """What a key is for. `admin` includes all other scopes except `join`; `crawl` includes `agent`; all of these and
    `read_all` include `read`.
    """

    JOIN = "join"  # become a crawl node, once: its owner learns Scrapyd's password
    METRICS = "metrics"  # read the platform's metrics, and nothing else
    READ = "read"  # see its user's crawls, and what can be crawled
    READ_ALL = "read_all"  # see the crawls of all users, or, with `ApiKey.projects`, those of some projects
    AGENT = "agent"  # read, and start crawls, for programs that may obey the pages that they read: `Caller.is_agent`
    CRAWL = "crawl"  # also make, change and end crawls
    ADMIN = "admin"  # do everything, for every user


_INCLUDED = {
    Scope.JOIN: {Scope.JOIN},
    Scope.METRICS: {Scope.METRICS},
    Scope.READ: {Scope.READ},
    Scope.READ_ALL: {Scope.READ, Scope.READ_ALL},
    Scope.AGENT: {Scope.READ, Scope.AGENT},
    Scope.CRAWL: {Scope.READ, Scope.AGENT, Scope.CRAWL},
    Scope.ADMIN: set(Scope) - {Scope.JOIN},
}


class ApiKey(NamedTuple):
    """A key, as it is known to gateways: without its secret."""

    id: str
    user_id: str
    scopes: frozenset[Scope]
    #: The SHA-256 of the secret, in hex.
    sha256: str
    created_at: datetime
    note: str | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    #: Exact to within `USE_NOTED_EVERY`.
    last_used_at: datetime | None = None
    #: Ids of sessions that were ended before they expired.
    ended_sessions: frozenset[str] = frozenset()
    #: How much its crawls may use on one day; `None` for no limit.
    budget: KeyBudget | None = None
    #: The only projects that it may read, for all users; empty for a key without this limit.
    projects: tuple[str, ...] = ()

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def allows(self, scope: Scope) -> bool:
        return any(scope in _INCLUDED[held] for held in self.scopes)


class Token(NamedTuple):
    """The secret that a client sends."""

    key_id: str
    secret: str

    def __str__(self) -> str:
        return f"{_KEY_PREFIX}_{self.key_id}_{self.secret}"

    def opens(self, key: ApiKey | None) -> bool:
        """Whether this is the key's token. Takes constant time."""
        return hmac.compare_digest(digest(self.secret), key.sha256 if key else _NOBODYS) and key is not None


Filter = TypeVar("Filter", bound=NamedTuple)


class Caller(NamedTuple):
    """Who makes a request, and what the caller may do."""

    #: The user whose jobs and schedules the caller may see; `None` for all users.
    user_id: str | None
    scopes: frozenset[Scope]
    key: ApiKey | None = None
    #: The projects that the caller may see; empty for all projects. Jobs of other projects must be neither shown nor
    #: counted.
    projects: tuple[str, ...] = ()

    @classmethod
    def with_key(cls, key: ApiKey) -> Caller:
        held = frozenset(scope for scope in Scope if key.allows(scope))
        return cls(None if Scope.ADMIN in held else key.user_id, held, key, key.projects)

    @property
    def name(self) -> str | None:
        """The user of its key."""
        return self.key.user_id if self.key else None

    @property
    def budget_key(self) -> str | None:
        """The id of its key if this key has a budget, which its crawls then use; otherwise `None`."""
        return self.key.id if self.key and self.key.budget else None

    @property
    def is_agent(self) -> bool:
        """Whether pages that the caller reads may manipulate it, because it is a program such as an AI agent. It may
        crawl for its user, but must not change anything that stays, learn secrets, or name webhooks.
        """
        return Scope.AGENT in self.scopes and Scope.CRAWL not in self.scopes

    def may_see(self, user_id: str) -> bool:
        return self.user_id in {None, user_id}

    def may_see_projects(self, projects: Collection[str]) -> bool:
        """Whether the caller may see something that belongs to these projects: all of them must be visible. If it
        belongs to no project, only callers who may see all projects may see it.
        """
        return not self.projects or (bool(projects) and set(projects) <= set(self.projects))

    def reading(self) -> Caller:
        """The caller at a route that only shows something. There, a caller with the scope `read_all` sees all users'
        crawls; at other routes, only its own.
        """
        return self._replace(user_id=None) if Scope.READ_ALL in self.scopes else self

    def looking_as(self, user_id: str | None) -> Caller:
        """The caller restricted to what this user sees, if the caller sees all users; otherwise the caller
        unchanged.
        """
        if user_id is None or self.user_id is not None:
            return self
        return self._replace(user_id=user_id, scopes=self.scopes - {Scope.ADMIN})

    def acting_for(self, user_id: str) -> str:
        """`user_id`, if the caller may act for this user. Raises `NotYourUserError`."""
        if not self.may_see(user_id):
            raise NotYourUserError(user_id)
        return user_id

    def asking(self, user_id: str | None) -> str:
        """The user for whom something is asked: `user_id`, or else the key's user. Raises `NotYourUserError`, and
        `InvalidRequestError` if there is neither.
        """
        if user_id is not None:
            return self.acting_for(user_id)
        if self.key is None:
            raise InvalidRequestError("user_id", "is required, because the request has no key with a user")
        return self.key.user_id

    def only(self, user_id: str | None) -> str | None:
        """The user to whom a list with this filter is limited; `None` for all users. Raises `NotYourUserError`."""
        return self.user_id if user_id is None else self.acting_for(user_id)

    def limited(self, wanted: Filter, user_id: str | None = None) -> Filter:
        """The filter of a list, which has the fields `user_id` and `projects`, limited to what the caller may see.
        Raises `NotYourUserError`.
        """
        limits: dict[str, Any] = {"user_id": self.only(user_id), "projects": self.projects}
        return wanted._replace(**limits)


#: The caller while there are no keys: everybody who can reach the gateway may do everything.
ANYBODY = Caller(None, frozenset(_INCLUDED[Scope.ADMIN]))


class Seal:
    """Signs sessions and stream tokens. Its secret is not in the database, so a stolen database opens no session."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def sign(self, key: ApiKey, *parts: object) -> str:
        """A signature of these parts, which is valid only while the key has the same secret."""
        return hmac.new(self._secret, repr((key.id, key.sha256, *parts)).encode(), hashlib.sha256).hexdigest()


def _parts(text: str, prefix: str, count: int) -> list[str] | None:
    """The parts after the prefix; `None` if the text does not have this prefix and this number of parts."""
    first, *parts = text.split("_")
    return parts if first == prefix and len(parts) == count and text.isascii() else None


def new_token(key_id: str | None = None) -> Token:
    """A new random token, for a new key."""
    return Token(key_id or secrets.token_hex(_ID_BYTES), secrets.token_hex(_SECRET_BYTES))


def read_token(text: str) -> Token | None:
    """The token in this text; `None` if the text is not a token."""
    parts = _parts(text, _KEY_PREFIX, 2)
    return Token(*parts) if parts else None


def digest(secret: str) -> str:
    """The SHA-256 of a secret, in hex."""
    return hashlib.sha256(secret.encode()).hexdigest()


# --- sessions of the console: the cookie that a browser has after its user has logged in with a key.
#
# Like stream tokens, sessions are signed with a secret that all gateways share, so that every process can check them
# without a query. They end when their key does. If a session is ended earlier, this is recorded in the key's
# document, which is read in any case.

#: The longest lifetime of a session. A session that expires later is not valid.
LONGEST = timedelta(days=30)
_SESSION_PREFIX = "cs"
_SESSION_ID_BYTES = 12


class ConsoleSession(NamedTuple):
    """A session of the console: what its cookie contains."""

    key_id: str
    id: str
    #: Seconds since the epoch.
    expires: int
    signature: str

    def __str__(self) -> str:
        return f"{_SESSION_PREFIX}_{self.key_id}_{self.id}_{self.expires}_{self.signature}"

    @property
    def expires_at(self) -> datetime:
        return datetime.fromtimestamp(self.expires, UTC)

    def opens(self, key: ApiKey, now: datetime, seal: Seal) -> bool:
        """Whether this is a valid session of the key. The key's own validity is not checked here."""
        is_ours = hmac.compare_digest(self.signature, seal.sign(key, "session", self.id, self.expires))
        lasts = now.timestamp() < self.expires <= (now + LONGEST).timestamp()
        return is_ours and lasts and self.id not in key.ended_sessions

    def csrf_token(self, key: ApiKey, seal: Seal) -> str:
        """The token that our pages send with each request that changes something. Pages of other sites cannot read
        it.
        """
        return seal.sign(key, "csrf", self.id, self.expires)


def open_session(key: ApiKey, now: datetime, lifetime: timedelta, seal: Seal) -> ConsoleSession:
    """A session that lasts for `lifetime`, but not longer than the key."""
    end = min(now + lifetime, key.expires_at or now + lifetime)
    identity, expires = secrets.token_hex(_SESSION_ID_BYTES), int(end.timestamp())
    return ConsoleSession(key.id, identity, expires, seal.sign(key, "session", identity, expires))


def read_session(text: str) -> ConsoleSession | None:
    """The session in this cookie; `None` if the text is not a session. Its signature is not checked."""
    parts = _parts(text, _SESSION_PREFIX, 4)
    if parts is None or not parts[2].isdigit():
        return None
    # read at most 15 digits, because Python takes long for a million of them
    return ConsoleSession(parts[0], parts[1], int(parts[2][:15]), parts[3])


# --- stream tokens: for a browser's `EventSource`, which cannot send headers. A token opens one job's log for a
# minute.
#
# Tokens are signed with a secret that all gateways share, so that they need not be stored, and every process can
# check them. They end when their key does.

LIFETIME = timedelta(seconds=60)
#: How far the clock of the gateway that made a token may be ahead of ours.
_AHEAD = timedelta(seconds=60)
_STREAM_PREFIX = "st"


class StreamToken(NamedTuple):
    """A token that opens the live log of one job."""

    key_id: str
    #: Seconds since the epoch.
    expires: int
    signature: str

    def __str__(self) -> str:
        return f"{_STREAM_PREFIX}_{self.key_id}_{self.expires}_{self.signature}"

    @property
    def expires_at(self) -> datetime:
        return datetime.fromtimestamp(self.expires, UTC)

    def opens(self, job_id: str, key: ApiKey, now: datetime, seal: Seal) -> bool:
        is_ours = hmac.compare_digest(self.signature, seal.sign(key, "stream", job_id, self.expires))
        return is_ours and now.timestamp() < self.expires <= (now + LIFETIME + _AHEAD).timestamp()


def sign(key: ApiKey, job_id: str, now: datetime, seal: Seal) -> StreamToken:
    """A token for the log of this job."""
    expires = int((now + LIFETIME).timestamp())
    return StreamToken(key.id, expires, seal.sign(key, "stream", job_id, expires))


def read_stream_token(text: str) -> StreamToken | None:
    """The stream token in this text; `None` if it is not one. Its signature is not checked."""
    parts = _parts(text, _STREAM_PREFIX, 3)
    if parts is None or not parts[1].isdigit():
        return None
    # as in `read_session`
    return StreamToken(parts[0], int(parts[1][:15]), parts[2])
