"""`/keys`: who may call the gateway, and as whom."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from gateway.access.key_store import MOST_PROJECTS, KeyIssue, KeyStore, KnownProjects
from gateway.access.keys import ApiKey, Scope
from gateway.errors import InvalidRequestError, KeyNotFoundError
from gateway.jobs.budgets import BudgetLeft, Budgets, in_minutes
from gateway.jobs.job import Amounts, KeyBudget
from gateway.stores.mongo import mongo_errors
from gateway.web.authentication import KeyRing
from gateway.web.authorisation import needs
from gateway.web.dependencies import Parts, Router
from gateway.web.errors import problems
from gateway.web.schemas.types import Open, QueryTime, Text, Timestamp, UserId

BUDGET_EXAMPLE: JsonDict = {
    "limits": {"pages": 500, "minutes": 60, "hosts": None, "bytes": None},
    "left": {"pages": 120, "minutes": 41, "hosts": None, "bytes": None},
    "reserved": {"pages": 80, "minutes": 10, "hosts": None, "bytes": None},
    "until": "2027-06-02T00:00:00.000Z",
}
_WISH: JsonDict = {"user_id": "abc123", "scopes": ["agent"], "note": "an agent", "budget": {"pages": 500}}
_KEY: JsonDict = {
    "key_id": "4f1d9c2b3a4e",
    "user_id": "abc123",
    "scopes": ["crawl"],
    "projects": [],
    "state": "valid",
    "note": "Anne's laptop",
    "budget": BUDGET_EXAMPLE,
    "created_at": "2027-06-01T09:00:00.000Z",
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": "2027-06-01T09:10:00.000Z",
}
_ISSUED: JsonDict = {**_KEY, "last_used_at": None, "key": f"db_4f1d9c2b3a4e_{'0d4f5c6b' * 6}"}

KeyId = Annotated[
    str, Path(pattern=r"^[0-9a-z]{1,40}$", description="As `GET /keys` has it.", examples=["4f1d9c2b3a4e"])
]


class KeyState(StrEnum):
    """Whether a key is valid."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


class KeyAmounts(BaseModel):
    """Amounts of what a budget limits."""

    pages: int | None
    minutes: int | None
    hosts: int | None
    bytes: int | None

    @classmethod
    def of(cls, amounts: Amounts) -> Self:
        return cls(**(dict.fromkeys(cls.model_fields) | in_minutes(amounts)))


class KeyBudgetView(BaseModel):
    """What the crawls of a key may take on one day; null is no limit."""

    model_config = ConfigDict(json_schema_extra={"examples": [BUDGET_EXAMPLE]})

    limits: KeyAmounts
    left: KeyAmounts = Field(description="How much further crawls may use today.")
    reserved: KeyAmounts = Field(
        description="How much is reserved for crawls that have not ended, and so is not in `left`. They give back "
        "what they do not use."
    )
    until: Timestamp = Field(description="When the next day begins.")

    @classmethod
    def of(cls, found: BudgetLeft) -> Self:
        limits = found.budget.amounts
        left: Amounts = {name: limit - found.used.get(name, 0) for name, limit in limits.items()}
        amounts = {"limits": limits, "left": left, "reserved": found.reserved}
        return cls(until=found.until, **{name: KeyAmounts.of(one) for name, one in amounts.items()})


class KeyCreate(BaseModel):
    """A new key: whose it is, and what it may do."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_WISH]})

    user_id: UserId = Field(description="The user that it acts for.")
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))] = Field(
        description="`admin` includes all others; `crawl` includes `agent`; these and `read_all` include `read`. "
        "The first key has to be an admin's."
    )
    projects: list[Annotated[str, Field(max_length=100)]] = Field(
        default_factory=list,
        max_length=MOST_PROJECTS,
        description="With `read_all` alone: the key may only read these projects, of all users.",
        examples=[["shop"]],
    )
    expires_at: QueryTime | None = Field(
        default=None, description="The key is invalid from then on; by default it does not expire."
    )
    note: Annotated[Text, Field(max_length=200)] | None = Field(default=None, description="What the key is for.")
    budget: KeyBudget | None = Field(
        default=None,
        description="What all its crawls together may take on one day (UTC). For keys with the scope agent or crawl, "
        "and not for an admin's.",
    )


class KeyView(BaseModel):
    """A key, without its secret."""

    model_config = ConfigDict(json_schema_extra={"examples": [_KEY]})

    key_id: str
    user_id: str
    scopes: list[Open[Scope]]
    projects: list[str] = Field(description="The projects that the key may read; empty if all.")
    state: KeyState
    note: str | None
    budget: KeyBudgetView | None
    created_at: Timestamp
    expires_at: Timestamp | None
    revoked_at: Timestamp | None
    last_used_at: Timestamp | None = Field(description="To within ten minutes.")

    @classmethod
    def of(cls, key: ApiKey, now: datetime, left: BudgetLeft | None = None, /, **more: str) -> Self:
        state = KeyState.REVOKED if key.revoked_at else KeyState.VALID if key.is_valid(now) else KeyState.EXPIRED
        scopes, projects = [scope for scope in Scope if scope in key.scopes], list(key.projects)
        known = key._asdict() | {"scopes": scopes, "projects": projects}
        shown = {name: known[name] for name in cls.model_fields if name in known and name != "budget"}
        budget = KeyBudgetView.of(left) if left else None
        return cls(key_id=key.id, state=state, budget=budget, **shown, **more)


class IssuedView(KeyView):
    """A key that was just made."""

    model_config = ConfigDict(json_schema_extra={"examples": [_ISSUED]})

    key: str = Field(description="`db_<id>_<secret>`. Only this answer has it.")


class KeyList(BaseModel):
    """All keys."""

    keys: list[KeyView]


def left_of(key: ApiKey | None, budgets: Budgets) -> BudgetLeft | None:
    """How much of its budget the key has today; `None` without one."""
    return budgets.left({key.id: key.budget})[key.id] if key and key.budget else None


router = Router(prefix="/keys", tags=["access"])


@router.get("", summary="Keys", responses=problems(503))
@needs(Scope.ADMIN)
def list_keys(parts: Parts) -> KeyList:
    """All keys, the oldest first; expired and revoked ones, too. Secrets are never shown."""
    now = parts.clock()
    with mongo_errors():
        keys = parts[KeyStore].all()
        left = parts[Budgets].left({key.id: key.budget for key in keys if key.budget})
        return KeyList(keys=[KeyView.of(key, now, left.get(key.id)) for key in keys])


@router.post("", status_code=201, summary="Make a key", responses=problems(503))
@needs(Scope.ADMIN)
def create_key(body: KeyCreate, parts: Parts) -> IssuedView:
    """The answer has the whole key, which is not kept: it cannot be shown again. Once there is a key, every call
    takes one, so the first has to be an admin's.
    """
    now = parts.clock()
    if body.expires_at is not None and body.expires_at <= now:
        raise InvalidRequestError("expires_at", "lies in the past: choose a time that is still to come")
    with mongo_errors():
        if Scope.ADMIN not in body.scopes and not parts[KeyStore].any():
            raise InvalidRequestError(
                "scopes", "the first key has to be an admin's: from then on every call takes one"
            )
        if body.projects:
            parts[KnownProjects].require(body.projects)
        issued = parts[KeyIssue].issue(
            body.user_id,
            body.scopes,
            expires_at=body.expires_at,
            note=body.note,
            budget=body.budget,
            projects=body.projects,
        )
        # its maker signs in with it at once
        parts[KeyRing].has_first()
        return IssuedView.of(issued.key, now, left_of(issued.key, parts[Budgets]), key=str(issued.token))


@router.delete("/{key_id}", summary="Revoke a key", responses=problems(404, 503))
@needs(Scope.ADMIN)
def revoke_key(key_id: KeyId, parts: Parts) -> KeyView:
    """Within seconds the key, its sessions and its stream tokens are invalid, and its open streams end. The key stays
    in the list.
    """
    with mongo_errors():
        key = parts[KeyStore].revoke(key_id)
        if key is None:
            raise KeyNotFoundError(key_id)
        return KeyView.of(key, parts.clock(), left_of(key, parts[Budgets]))
