"""`discoverybot keys`: who may call the gateway. An administrator asks the gateway. On the server, where nobody may
have a key yet, MongoDB is asked directly.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import typer
from pymongo.errors import PyMongoError

from embedded.stack.state import StackState
from gateway.access.audit import AuditEntry, AuditKind, AuditStore
from gateway.access.key_store import KeyIssue, KeyStore, KnownProjects
from gateway.access.keys import ApiKey, Scope
from gateway.cli.api import Api, ApiError, ExitCode
from gateway.cli.commands import ApiCommand, Resource, group
from gateway.cli.options import JSON, URL, option, read_time, taking
from gateway.cli.terminal import Record, counted, err, gateway_url, home, out, print_json, program
from gateway.container import Container
from gateway.errors import DiscoveryBotError
from gateway.jobs.budgets import BudgetLeft, Budgets, in_minutes
from gateway.jobs.job import KeyBudget
from gateway.projects.environment import ProjectEnvironment
from gateway.signals.signatures import WebhookSecrets
from gateway.sites.site import OPERATOR

#: The form of a user id in the API.
_USER_ID = re.compile(r"[A-Za-z0-9._@+|~=-]{1,128}")
_SPAN = re.compile(r"([1-9][0-9]{0,5})([hdw])")
_USER = option("user_id", "Only this user's.", "--user")
_SCOPES = (
    "metrics: figures for Prometheus; read: see its user's crawls; read_all: see those of all users; "
    "agent: read and crawl now, for AI agents; crawl: also change and end all that is its user's; admin: everything."
)
#: The scopes of keys with which one signs in to the console.
_FOR_PEOPLE = {Scope.READ, Scope.READ_ALL, Scope.CRAWL, Scope.ADMIN}
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def _asks_gateway(api: Api) -> bool:
    """Whether keys are asked of the gateway: somebody names one, and no database beside it."""
    return api.is_named or bool(os.environ.get("DISCOVERYBOT_URL") and not os.environ.get("MONGO_URI"))


def _list(api: Api, user_id: str | None = None) -> Record:
    keys = api.get("/keys")["keys"] if _asks_gateway(api) else _stored_keys()
    return {"keys": [key for key in keys if user_id in {None, key["user_id"]}]}


def _stored_keys() -> list[Record]:
    with _parts() as parts:
        keys = parts[KeyStore].all()
        left = parts[Budgets].left({key.id: key.budget for key in keys if key.budget})
        return [_record(key, left.get(key.id)) for key in keys]


def _record(key: ApiKey, left: BudgetLeft | None = None) -> Record:
    """The key's fields, without the secret."""
    times = ("created_at", "expires_at", "revoked_at", "last_used_at")
    moments = {name: moment and moment.isoformat() for name in times for moment in [getattr(key, name)]}
    state = "revoked" if key.revoked_at else "valid" if key.is_valid(datetime.now(UTC)) else "expired"
    about = {"key_id": key.id, "user_id": key.user_id, "scopes": sorted(key.scopes), "note": key.note}
    return {**about, "projects": list(key.projects), "budget": _budget_record(left), "state": state, **moments}


def _budget_record(left: BudgetLeft | None) -> Record | None:
    if left is None:
        return None
    limits = left.budget.model_dump(exclude_none=True)
    return {"limits": limits, "used": in_minutes(left.used), "until": left.until.isoformat()}


KEYS = Resource(
    name="keys",
    one="key",
    key="key_id",
    digits=12,
    about="Keys: who may call the gateway, and as whom.",
    columns="KEY key_id, *USER user_id, *SCOPES scopes, *PROJECTS projects, *BUDGET budget, STATE state, "
    "4CREATED created_at:time, 2EXPIRES expires_at:time, 3LAST USED last_used_at:time, 1*NOTE note",
    empty="no keys: all who reach the gateway may do everything. `{program} keys create --scope admin` makes one",
    cells={
        "scopes": lambda key: ",".join(key["scopes"]),
        "projects": lambda key: ", ".join(key["projects"]),
        "budget": lambda key: _budget_words(key["budget"]),
    },
    actions=(
        ApiCommand("list", _list, "All keys, the oldest first, without their secrets.", options=(_USER,)),
        ApiCommand("show", _list, "One key, as JSON, without its secret.", picked=True),
    ),
)
app = group(KEYS)


@app.command()
@taking(
    option("user", "The user that it acts for.", default=OPERATOR, metavar="USER"),
    option("scope", _SCOPES, kind=list[str], default=..., metavar="SCOPE", words=Scope),
    option(
        "projects",
        "With read_all: read all users' crawls of this project only; repeatable.",
        "--project",
        kind=list[str],
        metavar="PROJECT",
    ),
    option("budget", "What its crawls may use in a day (UTC).", metavar="pages=N,minutes=N,hosts=N,bytes=N"),
    option("expires", "Until when, or for how long.", metavar="90d|TIME"),
    option("note", "A note: what the key is for."),
    JSON,
    URL,
)
def create(
    *,
    user: str,
    scope: list[str],
    projects: list[str] | None,
    budget: str | None,
    expires: str | None,
    note: str | None,
    as_json: bool,
    url: str | None,
) -> None:
    """Make a key and print it: it cannot be shown again. Once there is one, every request needs a key."""
    api = _api(url)
    wish: Record = {"user_id": _user(user), "scopes": _scopes(scope), "expires_at": _expiry(expires), "note": note}
    wish |= {"budget": _budget(budget), "projects": projects or []}
    made, address = _make_over_http(api, wish) if _asks_gateway(api) else _make_stored(wish)
    is_first = made.pop("is_first", False)
    if as_json:
        print_json(made)
    else:
        out.print(made["key"], soft_wrap=True)
    if _FOR_PEOPLE.intersection(made["scopes"]):
        _print_invitation(made, address, as_json=as_json)
    err.print(f"Keep it: it is not shown again. `{program()}` sends it if DISCOVERYBOT_KEY is set to it.")
    if is_first:
        err.print(
            "It is the first one: within a few seconds the gateway refuses requests without a key.", style="yellow"
        )


def _scopes(words: Iterable[str]) -> list[Scope]:
    try:
        return [Scope(word) for word in words]
    except ValueError as error:
        raise typer.BadParameter(f"{error}; it is one of {', '.join(Scope)}", param_hint="--scope") from None


def _api(url: str | None) -> Api:
    api = Api(gateway_url(url))
    api.is_named = bool(url)
    return api


def _make_over_http(api: Api, wish: Record) -> tuple[Record, str]:
    """The new key as the gateway answers, and the address of the console."""
    budget, expires_at = wish["budget"], wish["expires_at"]
    asked = {
        **wish,
        "budget": budget and budget.model_dump(exclude_none=True),
        "expires_at": expires_at and expires_at.isoformat(),
    }
    made: Record = api.call("POST", "/keys", json={name: value for name, value in asked.items() if value})
    return made, api.url


def _make_stored(wish: Record) -> tuple[Record, str]:
    """The same, from the database."""
    with _parts() as parts:
        is_first = not parts[KeyStore].any()
        if is_first and Scope.ADMIN not in wish["scopes"]:
            raise ApiError(
                "--scope: the first key has to be an admin's: from then on every call takes one, also yours. "
                f"`{program()} keys create --scope admin` makes it; keep it in DISCOVERYBOT_KEY, then make this one"
            )
        if wish["projects"]:
            parts[KnownProjects].require(wish["projects"])
        about = {name: value for name, value in wish.items() if name not in {"user_id", "scopes"}}
        issued = parts[KeyIssue].issue(wish["user_id"], wish["scopes"], **about)
        key, limits = issued.key, wish["budget"]
        left = parts[Budgets].left({key.id: limits})[key.id] if limits else None
        _record_command(parts, "keys create", key_id=key.id, user_id=key.user_id)
        address = parts.public_url if parts.settings.public_url else gateway_url()
    return {**_record(key, left), "key": str(issued.token), **({"is_first": True} if is_first else {})}, address


def _print_invitation(made: Record, address: str, *, as_json: bool) -> None:
    """How the key's user gets in. Where the output goes to a program, its log must not have the key once more."""
    is_shown = out.is_terminal and not as_json
    link = f"{address}/console/sign-in#{made['key'] if is_shown else '<the key>'}"
    err.print(f"Invitation link: {link}", soft_wrap=True, markup=False)
    err.print(
        f"Send it to {made['user_id']} privately: it opens the console with the key filled in, and *Sign in* is all "
        "that is left to do.",
        soft_wrap=True,
        markup=False,
    )


@app.command()
@taking(KEYS.parameter("key_id"), JSON, URL)
def revoke(*, key_id: str, as_json: bool, url: str | None) -> None:
    """Revoke a key, with its sessions, stream tokens and open streams. It takes seconds."""
    api = _api(url)
    key_id = KEYS.find(api, key_id)
    gone = api.call("DELETE", f"/keys/{quote(key_id, safe='')}") if _asks_gateway(api) else _revoke_stored(key_id)
    print_json(gone) if as_json else out.print(f"{key_id}: revoked")


def _revoke_stored(key_id: str) -> Record:
    with _parts() as parts:
        if (key := parts[KeyStore].revoke(key_id)) is None:
            raise ApiError(f"there is no key {key_id!r}; `{program()} keys list` shows their ids")
        _record_command(parts, "keys revoke", key_id=key_id)
    return _record(key)


def reseal_secrets() -> None:
    """`discoverybot env reseal`."""
    with _parts() as parts:
        count = parts[ProjectEnvironment].seal_anew() + parts[WebhookSecrets].seal_anew()
        _record_command(parts, "env reseal")
    out.print(f"{counted(count, 'secret')} sealed anew")


def _record_command(parts: Container, command: str, **resources: str) -> None:
    """Record in the audit trail what a person with access to the database did. Raises `PyMongoError`."""
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    entry = AuditEntry(at=parts.clock(), kind=AuditKind.COMMAND, route=command, resources=resources, address=who)
    parts[AuditStore].insert([entry])


@contextmanager
def _parts() -> Iterator[Container]:
    """Services on the database that `MONGO_URI` names, else on the database of this data folder's stack. Raises
    `ApiError`.
    """
    with closing(Container()) as parts:
        if not os.environ.get("MONGO_URI") and (stack := StackState.read(home())):
            parts.mongo_uri = stack.mongo_uri
        try:
            yield parts
        except PyMongoError as error:
            remedy = (
                "name it with MONGO_URI, the folder of a running stack with DISCOVERYBOT_HOME, or a gateway with "
            )
            remedy += "--url and an admin's key in DISCOVERYBOT_KEY"
            raise ApiError(f"MongoDB cannot be asked ({type(error).__name__}): {remedy}", ExitCode.ERROR) from None
        except DiscoveryBotError as error:
            raise ApiError(error.message, ExitCode.ERROR, detail=error.detail) from None


def _budget_words(budget: Record | None) -> str:
    """`12/50 pages`: how much of the day's budget is used or reserved."""
    limits = {name: limit for name, limit in (budget or {"limits": {}})["limits"].items() if limit is not None}
    if not budget or not limits:
        return ""
    # the gateway says what is left
    used = budget.get("used") or {name: limit - budget["left"][name] for name, limit in limits.items()}
    return ", ".join(f"{used[name]}/{limit} {name}" for name, limit in limits.items())


def _budget(text: str | None) -> KeyBudget | None:
    """The budget that `text` describes. Raises `BadParameter`."""
    if text is None:
        return None
    pairs = [part.strip().partition("=") for part in text.split(",")]
    try:
        return KeyBudget.model_validate({name: int(amount) for name, _, amount in pairs})
    except ValueError:
        known = ", ".join(KeyBudget.model_fields)
        raise typer.BadParameter(
            f"takes whole numbers for {known}: pages=500,minutes=60", param_hint="--budget"
        ) from None


def _user(text: str) -> str:
    if not _USER_ID.fullmatch(text):
        raise typer.BadParameter("a user id is 1 to 128 letters, digits and . _ @ + | ~ = -", param_hint="--user")
    return text


def _expiry(text: str | None) -> datetime | None:
    """The moment at which a key expires; `None` for never. Raises `BadParameter`."""
    now = datetime.now(UTC)
    if text and (span := _SPAN.fullmatch(text)):
        return now + int(span[1]) * _UNITS[span[2]]
    moment = read_time(text, "--expires")
    if moment is None:
        return None
    if (expiry := datetime.fromisoformat(moment).astimezone(UTC)) <= now:
        raise typer.BadParameter("is in the past: choose a time that is still to come", param_hint="--expires")
    return expiry
