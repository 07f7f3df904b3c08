"""Stores API keys. Keys are revoked, but never removed: a gateway without any keys is open to everybody, and must not
become so again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import NamedTuple

from attrs import define
from pydantic import TypeAdapter
from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.access.keys import ApiKey, Scope, Token, digest, new_token
from gateway.clock import Clock, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.crash_points import state_change
from gateway.errors import InvalidRequestError
from gateway.jobs.job import KeyBudget
from gateway.jobs.queries import JobFilter, JobQueries
from gateway.projects.catalog import SpiderCatalog, project_name
from gateway.projects.eggs import PROJECT_NAME
from gateway.projects.environment import ProjectStore
from gateway.sites.site import OPERATOR
from gateway.stores.documents import Documents
from gateway.stores.mongo import Document, Repeating

#: A key's last use is recorded at most this often. It only shows which keys are not needed; the audit log has all
#: calls.
USE_NOTED_EVERY = timedelta(minutes=10)
#: Maximum number of ended sessions that are remembered per key. If there are more, those that expire first are
#: dropped, and are valid again until they expire.
MOST_ENDED = 1000
_KEY = TypeAdapter(ApiKey)
_APART = frozenset({"id", "ended_sessions", "budget", "projects"})
#: Maximum number of projects that one key can be limited to, and of known projects that an error names.
MOST_PROJECTS, _NAMED = 20, 10


class KeyStore:
    """The collection `keys`."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._keys = database["keys"]
        self._documents = Documents(self._keys, read_key)
        self._clock = clock

    @state_change("keys.insert")
    def insert(self, key: ApiKey) -> bool:
        """Insert the key. Returns false if there is already a key with its id."""
        document = {name: value for name, value in key._asdict().items() if name not in _APART and value is not None}
        try:
            rights = _stored_projects(key) or _stored_budget(key) or _stored(key.scopes)
            new = {**document, "_id": key.id, **rights}
            # compare the secret's hash, so that another key with the same id is not taken for this one
            Repeating(self._keys).insert_one(new, ours=["sha256"])
        except DuplicateKeyError:
            return False
        return True

    def any(self) -> bool:
        """Whether there are any keys, including revoked and expired ones."""
        return self._keys.find_one({}, {"_id": 1}) is not None

    def all(self) -> list[ApiKey]:
        """The oldest first."""
        return self._documents.many(self._keys.find().sort([("created_at", ASCENDING)]))

    def get(self, key_id: str) -> ApiKey | None:
        """The key with this id; `None` if there is none, or if its document cannot be read."""
        return self._documents.optional(self._keys.find_one({"_id": key_id}))

    def use(self, key_id: str) -> ApiKey | None:
        """The key with this id; `None` if there is none. If it is valid, its use is recorded."""
        key, now = self.get(key_id), self._clock()
        if key and key.is_valid(now) and (key.last_used_at is None or now - key.last_used_at >= USE_NOTED_EVERY):
            self._note_use(key_id, now)
        return key

    @state_change("keys.revoke")
    def revoke(self, key_id: str) -> ApiKey | None:
        """Revoke the key and return it; `None` if there is none."""
        unrevoked = {"_id": key_id, "revoked_at": {"$exists": False}}
        self._keys.update_one(unrevoked, {"$set": {"revoked_at": self._clock()}})
        return self.get(key_id)

    @state_change("keys.use_up")
    def use_up(self, key_id: str) -> bool:
        """Revoke a key that can be used only once. Returns false if it was revoked before."""
        unrevoked = {"_id": key_id, "revoked_at": {"$exists": False}}
        now = self._clock()
        used = {"revoked_at": now, "last_used_at": now}
        return Repeating(self._keys).change_one(unrevoked, {"$set": used}, done={"_id": key_id, **used})

    @state_change("keys.end_session")
    def end_session(self, key_id: str, session_id: str, until: datetime) -> None:
        """Record in the key's document that the session was ended. `until` is when it would have expired. Records of
        sessions that have expired are removed.
        """
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
        Repeating(self._keys).update_one({"_id": key_id}, {"$set": {"last_used_at": now}})


#: Scopes that the first release did not have, each with the field that marks it in the key's document.
_MARKS = {Scope.READ_ALL: "reads_all", Scope.AGENT: "acts_as_agent"}


def _stored(scopes: Collection[Scope]) -> Document:
    """The scopes as they are stored. `read_all` and `agent` are stored as `read` with a mark, so that a gateway of an
    older release, which does not know them, lets the key read only what its user owns.
    """
    marked = {mark: True for scope, mark in _MARKS.items() if scope in scopes}
    if not marked:
        return {"scopes": sorted(scopes)}
    return {"scopes": sorted({*scopes, Scope.READ} - _MARKS.keys()), **marked}


def _stored_budget(key: ApiKey) -> Document:
    """The stored rights of a key with a budget. It is stored with the scope `read`, so that a gateway of an older
    release, which knows no budgets, does not let it start crawls.
    """
    if key.budget is None:
        return {}
    within = sorted(key.scopes)
    return {"scopes": [Scope.READ], "within_budget": within, "budget": key.budget.model_dump(exclude_none=True)}


def _stored_projects(key: ApiKey) -> Document:
    """The stored rights of a key that is limited to projects. It is stored as expired and without a scope, so that a
    gateway of an older release, which does not know this limit, refuses it.
    """
    if not key.projects:
        return {}
    expires = {} if key.expires_at is None else {"projects_until": key.expires_at}
    return {"scopes": [], "expires_at": key.created_at, "projects": list(key.projects), **expires}


def read_key(document: Document) -> ApiKey:
    known = {name: document[name] for name in ApiKey._fields if name in document}
    if known.get("projects"):
        known |= {"scopes": [Scope.READ_ALL], "expires_at": document.get("projects_until")}
    if "budget" in document:
        known["scopes"] = document.get("within_budget", ())
    marked = {scope for scope, mark in _MARKS.items() if document.get(mark) is True}
    if marked:
        known["scopes"] = {*known["scopes"], *marked} - {Scope.READ}
    return _KEY.validate_python(
        {**known, "id": document["_id"], "ended_sessions": [*document.get("ended_sessions", ())]}
    )


class Owner(NamedTuple):
    """To whom a job or schedule belongs."""

    user_id: str
    #: Its project, and, for a schedule, the project that it was moved from. Empty if its document names none.
    projects: frozenset[str]


#: The fields of documents that contain their project; and the field with the project that a schedule was moved from.
_PROJECT_FIELDS, _MOVED_FROM = ("project", "spec.project", "crawl.spec.project"), "moved_from"


class OwnerStore:
    """The owners of jobs and schedules. No other fields of these are read."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def of(self, ids: Collection[str], collections: Iterable[str]) -> dict[str, set[Owner]]:
        """The owners of the documents with these ids in these collections, by id. If several collections have a
        document with the same id, it has several owners.
        """
        owners: dict[str, set[Owner]] = {}
        fields = dict.fromkeys(("user_id", *_PROJECT_FIELDS, _MOVED_FROM), 1)
        for name in collections:
            for document in self._database[name].find({"_id": {"$in": list(ids)}}, fields):
                owners.setdefault(document["_id"], set()).add(Owner(document["user_id"], _projects(document)))
        return owners


def _projects(document: Document) -> frozenset[str]:
    spec = document.get("spec") or (document.get("crawl") or {}).get("spec") or document
    return frozenset(where[name] for where, name in ((spec, "project"), (document, _MOVED_FROM)) if name in where)


#: The first key's id. It is always the same, so that only one of several gateways that start at once makes the key.
FIRST = "first"


class Issued(NamedTuple):
    """A new key, with its token."""

    key: ApiKey
    #: The token is not stored, so it can be shown only once.
    token: Token


@define(eq=False, repr=False, slots=False)
class KeyIssue:
    """Makes new keys."""

    _keys: KeyStore
    _clock: Clock = utc_now

    def issue(
        self,
        user_id: str,
        scopes: Iterable[Scope],
        *,
        expires_at: datetime | None = None,
        note: str | None = None,
        budget: KeyBudget | None = None,
        projects: Sequence[str] = (),
    ) -> Issued:
        """Make and store a new key. Raises `InvalidRequestError` if it has a budget but may not start crawls, or
        could evade the budget; and if it is limited to projects but may do more than read.
        """
        scopes = frozenset(scopes)
        named = _checked_projects(projects, scopes)
        if budget is not None and Scope.ADMIN in scopes:
            raise InvalidRequestError("budget", "an admin's key cannot have one, because it can make other keys")
        if budget is not None and not (budget.amounts and scopes & {Scope.AGENT, Scope.CRAWL}):
            raise InvalidRequestError("budget", "needs a limit, and the scope agent or crawl")
        issued = self._made(new_token(), user_id, scopes)
        key = issued.key._replace(expires_at=expires_at, note=note, budget=budget, projects=named)
        issued = issued._replace(key=key)
        self._keys.insert(issued.key)
        return issued

    def issue_first(self) -> Issued | None:
        """Issue an admin's key if there is no key at all."""
        if self._keys.any():
            return None
        issued = self._made(new_token(FIRST), OPERATOR, [Scope.ADMIN])
        return issued if self._keys.insert(issued.key) else None

    def _made(self, token: Token, user_id: str, scopes: Iterable[Scope]) -> Issued:
        return Issued(ApiKey(token.key_id, user_id, frozenset(scopes), digest(token.secret), self._clock()), token)


@define(eq=False, repr=False, slots=False)
class KnownProjects:
    _catalog: SpiderCatalog
    _variables: ProjectStore
    _queries: JobQueries

    def require(self, names: Iterable[str]) -> None:
        """Raises `InvalidRequestError` for a project that nothing is known of: a misspelt one would give a key that
        reads nothing, which nobody notices until its owner asks.
        """
        known = {project.name for project in self._catalog.projects()}
        configured = self._variables.configured()
        known |= configured | {DEFAULT_PROJECT}
        for name in map(project_name, names):
            # variables are kept by names in small letters
            if (
                name not in known
                and name.lower() not in configured
                and not self._queries.count(JobFilter(project=name), 1)
            ):
                alike = {one.lower(): one for one in known}
                near = [alike[one] for one in get_close_matches(name.lower(), alike, cutoff=0.6)]
                hint = (
                    f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(sorted(known)[:_NAMED])}"
                )
                raise InvalidRequestError("projects", f"there is no project {name!r}; {hint}")


def _checked_projects(projects: Sequence[str], scopes: Collection[Scope]) -> tuple[str, ...]:
    if projects and set(scopes) != {Scope.READ_ALL}:
        raise InvalidRequestError("projects", "are only for a key whose only scope is read_all")
    if len(projects) > MOST_PROJECTS:
        raise InvalidRequestError("projects", f"a key may have at most {MOST_PROJECTS}")
    if wrong := [one for one in projects if not PROJECT_NAME.fullmatch(one)]:
        raise InvalidRequestError("projects", f"{wrong[0]!r} is not the name of a project: GET /projects lists them")
    return tuple(sorted({project_name(one) for one in projects}))
