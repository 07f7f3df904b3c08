"""`discoverybot doctor` and `alive`: what runs, what is wrong, and how to repair it."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from enum import Enum, StrEnum, auto
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import httpx2
import typer
from pymongo.database import Database
from pymongo.errors import PyMongoError
from rich.text import Text

from discoverybot_client import Client, DiscoveryBotError, GatewayUnreachableError
from embedded.stack.ports import LOOPBACK, is_free
from embedded.stack.state import StackState
from embedded.stack.stores import NO_REDIS, StackStoreError, check_mongo, check_redis, redacted, redis_servers
from gateway.cli.api import ApiError, ExitCode
from gateway.cli.options import URL, flag, taking
from gateway.cli.terminal import gateway_url, home, out, print_json, program
from gateway.contract.node_list import is_taken, read_place
from gateway.errors import SettingsError
from gateway.nodes.health import BEAT, DEAD_AFTER, WORKER, HeartbeatStore
from gateway.nodes.store import NodeStore
from gateway.settings import Settings
from gateway.stores.mongo import ServerClock, connect

_PACKAGES = ("discoverybot", "scrapy", "scrapyd", "celery", "fastapi", "pymongo", "redis")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_TIMEOUT = 5
_LOW_DISK = 1 << 30
#: At most this many unreadable documents, and as many processes of an older version, are named.
_MOST_NAMED = 20
_AT_LEAST = (3, 11)


class Mark(Enum):
    OK = auto()
    INFO = auto()
    BROKEN = auto()


class Finding(NamedTuple):
    mark: Mark
    name: str
    text: str
    #: How to repair it.
    remedy: str = ""


class Patient(NamedTuple):
    settings: Settings
    home: Path
    stack: StackState | None
    gateway_url: str
    #: The gateway's report on its parts, or why there is none.
    health: dict[str, Any] | str
    #: Whether the user has named the gateway, so that it must be there.
    named: bool

    @property
    def running(self) -> StackState | None:
        """The stack of this data folder, if it runs."""
        return self.stack if self.stack and self.stack.leftovers() else None


def health(url: str) -> dict[str, Any] | str:
    """The checks of the gateway at `url`, or a message about what is wrong with its answer."""
    try:
        with Client(url, timeout=_TIMEOUT, retries=0) as client:
            checks: dict[str, Any] = client.health()["checks"]
        return {name: {"todo": None, **check} for name, check in checks.items()}
    except (GatewayUnreachableError, ValueError) as error:
        return str(error)
    except (DiscoveryBotError, LookupError, TypeError, AttributeError):
        return f"{url} answers, but it is not a gateway"


def host(settings: Settings) -> Iterator[Finding]:
    if settings.serves_others:
        text = f"{settings.gateway_host}: others can reach the gateway, so every call takes a key"
        yield Finding(Mark.INFO, "gateway host", text, f"{program()} keys list")


def versions() -> Iterator[Finding]:
    text = f"{platform.python_version()} ({sys.executable})"
    is_late = sys.version_info >= _AT_LEAST
    yield Finding(Mark.OK if is_late else Mark.BROKEN, "python", text, "" if is_late else "3.11 or later is needed")
    yield Finding(Mark.OK, "versions", ", ".join(f"{name} {version(name)}" for name in _PACKAGES))


def disk(patient: Patient) -> Iterator[Finding]:
    existing = next(path for path in (patient.home, *patient.home.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    text = f"{patient.home}: {free / (1 << 30):.1f} GiB free"
    if not os.access(existing, os.W_OK):
        yield Finding(
            Mark.BROKEN, "data folder", f"{existing} is not writable", "choose another with DISCOVERYBOT_HOME"
        )
    elif free < _LOW_DISK:
        yield Finding(Mark.BROKEN, "data folder", text, "make room, or choose another place with DISCOVERYBOT_HOME")
    else:
        yield Finding(Mark.OK, "data folder", text)


def binaries(_: Patient) -> Iterator[Finding]:
    if server := next(redis_servers(), None):
        yield Finding(Mark.OK, "redis binary", server.origin)
    else:
        yield Finding(Mark.BROKEN, "redis binary", NO_REDIS, "set REDIS_URL, or install redis-server 7 or later")
    mongod = shutil.which("mongod")
    yield Finding(
        Mark.INFO, "mongod", mongod or "not installed: the embedded server is used, which is for laptops only"
    )
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    yield Finding(Mark.INFO, "chromium", browser or "not installed: only spiders that use a browser need it")
    if not find_spec("scrapy_playwright"):
        yield Finding(Mark.INFO, "render", "not installed: rendered pages need discoverybot[render] on their node")


def stack(patient: Patient) -> Iterator[Finding]:
    if (running := patient.running) is None:
        yield Finding(Mark.INFO, "stack", f"no stack runs with {patient.home}", f"start it: {program()} up")
        yield from _ports(patient)
        return
    alive = {process.pid for process in running.leftovers()}
    gone = [name for name, pid in running.pids.items() if pid not in alive]
    if not gone:
        yield Finding(Mark.OK, "stack", f"runs: {', '.join(running.pids)}")
    remedy = f"its supervisor starts it again; the log of `{program()} up` says why it ended"
    yield from (Finding(Mark.BROKEN, name, "is gone", remedy) for name in gone)


def _ports(patient: Patient) -> Iterator[Finding]:
    """Whether `up` could use its ports. A gateway that runs without `up` may use them itself, which is no fault."""
    elsewhere = patient.named or not isinstance(patient.health, str)
    settings = patient.settings
    for port, at, wanted_by, setting in (
        (settings.gateway_port, settings.gateway_address, "gateway port", "GATEWAY_PORT"),
        (settings.scrapyd_port, LOOPBACK, "scrapyd port", "SCRAPYD_PORT"),
    ):
        if is_free(port, at):
            yield Finding(Mark.OK, wanted_by, f"{port} is free")
        else:
            remedy = f"`up` needs it: free it, or set {setting}={port + 1}"
            yield Finding(Mark.INFO if elsewhere else Mark.BROKEN, wanted_by, f"{port} is taken", remedy)


def gateway(patient: Patient) -> Iterator[Finding]:
    if isinstance(patient.health, str):
        # otherwise no gateway is expected there, and the port has been checked
        if patient.named or patient.running:
            yield Finding(Mark.BROKEN, "gateway", patient.health, f"start it: {program()} up")
        return
    yield Finding(Mark.OK, "gateway", patient.gateway_url)
    for name, check in patient.health.items():
        mark = Mark.OK if check["status"] == "ok" else Mark.BROKEN
        yield Finding(mark, f"  {name}", check["message"], check["todo"] or "")


def stores(patient: Patient) -> Iterator[Finding]:
    """Ask the stores directly if no gateway does."""
    if not isinstance(patient.health, str):
        return
    known, running = patient.settings.model_fields_set, patient.running
    if running or known & {"redis_url", "redis_host", "redis_port"}:
        yield _store("redis", check_redis, running.redis_url if running else patient.settings.redis_location)
    if running or "mongo_uri" in known:
        yield _store("mongo", check_mongo, running.mongo_uri if running else patient.settings.mongo_uri)


def _store(name: str, check: Callable[[str], str], url: str) -> Finding:
    try:
        return Finding(Mark.OK, name, f"{redacted(url)} answers: {check(url)}")
    except StackStoreError as error:
        return Finding(Mark.BROKEN, name, str(error), "start it, or correct the setting")


def documents(patient: Patient) -> Iterator[Finding]:
    """Unreadable documents, and processes of different versions, if the database is known."""
    running = patient.running
    if not running and "mongo_uri" not in patient.settings.model_fields_set:
        return
    uri = running.mongo_uri if running else patient.settings.mongo_uri
    from gateway.retention.retention import UnreadableStore  # noqa: PLC0415 - as with redis

    database = connect(uri, timeout=_TIMEOUT)
    try:
        for found in UnreadableStore(database).all(_MOST_NAMED):
            remedy = f"a newer version may have made it: upgrade; or mend it in MongoDB ({found.collection})"
            yield Finding(Mark.BROKEN, "document", f"{found.collection}/{found.id}: {found.problem}", remedy)
        yield from _outdated(database, patient.settings)
    except PyMongoError:
        return  # `stores` reports that
    finally:
        database.client.close()


def _outdated(database: Database[dict[str, Any]], settings: Settings) -> Iterator[Finding]:
    """Which processes are older than others: `/health` keeps the names of their machines to itself."""
    from gateway.status.health import Signs, outdated  # noqa: PLC0415 - as with redis

    dead_after = timedelta(seconds=settings.node_dead_after)
    signs = Signs(NodeStore(database), HeartbeatStore(database), ServerClock(database)(), dead_after)
    newest, older = outdated(signs.running())
    for one in older[:_MOST_NAMED]:
        text = f"{one.kind} {one.name.removeprefix(f'{one.kind}:')} runs {one.version}, others run {newest}"
        yield Finding(Mark.INFO, "version", text)


def scrapyd(patient: Patient) -> Iterator[Finding]:
    """Scrapyd's console must answer, and only to requests with the password."""
    if (state := patient.running) is None:
        return
    address = f"{state.scrapyd_url}/daemonstatus.json"
    try:
        stranger = httpx2.get(address, timeout=_TIMEOUT, trust_env=False)
        key = (state.scrapyd_username, state.scrapyd_password)
        known = httpx2.get(address, auth=key, timeout=_TIMEOUT, trust_env=False)
    except httpx2.HTTPError as error:
        remedy = "the log of `discoverybot up` says why"
        yield Finding(Mark.BROKEN, "scrapyd", f"{state.scrapyd_url} does not answer ({type(error).__name__})", remedy)
        return
    if stranger.status_code != httpx2.codes.UNAUTHORIZED:
        yield Finding(Mark.BROKEN, "scrapyd", "answers without a password", "set SCRAPYD_PASSWORD and start again")
    elif known.is_success:
        yield Finding(Mark.OK, "scrapyd", f"{state.scrapyd_url} answers, and asks for its password")
    else:
        remedy = "SCRAPYD_PASSWORD has changed since the start: start again"
        yield Finding(Mark.BROKEN, "scrapyd", f"answers {known.status_code} to our password", remedy)


CHECKS: tuple[Callable[[Patient], Iterator[Finding]], ...] = (
    *(disk, binaries, stack, gateway, stores, documents, scrapyd),
)


_STYLES = {Mark.OK: ("✓", "green"), Mark.INFO: ("·", "blue"), Mark.BROKEN: ("✗", "bold red")}


@taking(flag("as_json", "What was found, as JSON.", "--json"), URL)
def doctor(*, as_json: bool, url: str | None) -> None:
    """Check the whole platform, and say how to repair it. Exit code 1 if something is broken."""
    findings = list(_findings(url))
    broken = sum(finding.mark is Mark.BROKEN for finding in findings)
    if as_json:
        print_json([{**finding._asdict(), "mark": finding.mark.name.lower()} for finding in findings])
        raise typer.Exit(ExitCode.ERROR if broken else ExitCode.OK)
    for finding in findings:
        out.print(_line(finding), soft_wrap=True)
    out.print(f"{broken} broken" if broken else "nothing is broken", style="bold red" if broken else "bold green")
    raise typer.Exit(ExitCode.ERROR if broken else ExitCode.OK)


def _findings(url: str | None) -> Iterator[Finding]:
    yield from versions()
    try:
        settings = Settings.load()
    except SettingsError as error:
        yield Finding(Mark.BROKEN, "settings", str(error), "correct the environment variable, or unset it")
        return
    yield Finding(Mark.OK, "settings", "all well-formed")
    yield from host(settings)
    named = url is not None or bool(os.environ.get("DISCOVERYBOT_URL"))
    address = gateway_url(url)
    patient = Patient(settings, home(), StackState.read(home()), address, health(address), named=named)
    for check in CHECKS:
        yield from check(patient)


def _line(finding: Finding) -> Text:
    sign, style = _STYLES[finding.mark]
    line = Text.assemble((f"{sign} ", style), (f"{finding.name:<14}", "bold"), finding.text)
    return line.append(f"\n  {'':<14}→ {finding.remedy}", style="yellow") if finding.remedy else line


# --- `discoverybot alive`: the health check of containers whose process listens on no port
class Kind(StrEnum):
    """A process without a port."""

    WORKER = "worker"
    BEAT = "beat"
    TAILER = "tailer"


def alive(
    kind: Annotated[Kind, typer.Argument(metavar="worker|beat|tailer", help="Which of this host's processes.")],
) -> None:
    """Exit code 0 if this host's worker, beat or tailer has given a sign of life lately. Asks MongoDB itself: that of
    MONGO_URI, else that of the stack of this data folder.
    """
    # not from the container, which would import the whole platform for every health check
    settings = Settings.load()
    stack = None if "mongo_uri" in settings.model_fields_set else StackState.read(home())
    database = connect(stack.mongo_uri if stack else settings.mongo_uri)
    try:
        silent = _silent_nodes(database, settings) if kind is Kind.TAILER else _silent_process(database, kind)
    except PyMongoError as error:
        raise ApiError(f"MongoDB cannot be asked ({type(error).__name__})", ExitCode.ERROR) from None
    finally:
        database.client.close()
    if silent:
        raise ApiError(f"no sign of life of {', '.join(silent)}", ExitCode.ERROR)
    out.print(f"{kind}: alive")


def _silent_process(database: Database[dict[str, Any]], kind: Kind) -> list[str]:
    prefix = f"{WORKER if kind is Kind.WORKER else BEAT}:{socket.gethostname()}:"
    signs = HeartbeatStore(database).all(prefix)
    now = ServerClock(database)()
    return [] if any(now - sign.at < DEAD_AFTER for sign in signs) else [prefix.rstrip(":")]


def _silent_nodes(database: Database[dict[str, Any]], settings: Settings) -> list[str]:
    """The nodes of this host whose tailer gives no sign of life."""
    now, nodes = ServerClock(database)(), NodeStore(database)
    known = ((name, nodes.get(name)) for name in _names(settings))
    dead_after = timedelta(seconds=settings.node_dead_after)
    return [name for name, node in known if node is None or not node.is_alive(now, dead_after)]


def _names(settings: Settings) -> list[str]:
    if settings.nodes_dir is None:
        return [settings.node_name]
    places = (read_place(home) for home in sorted(settings.nodes_dir.glob("*/")) if is_taken(home))
    return [place.name for place in places if place is not None]
