"""`discoverybot up`: makes the plan of the stack, refuses plans that cannot work, and runs the supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

import embedded
from embedded.stack.child import MARK, StackLog
from embedded.stack.ports import LOOPBACK, PortPicker, PortTakenError, cannot_bind, demand
from embedded.stack.process import Process, User, healthy, http_answers
from embedded.stack.state import FILE, AlreadyRunningError, StackState, make_private, only_stack, write_private
from embedded.stack.stores import (
    StackStore,
    StackStoreError,
    choose_mongo,
    choose_redis,
    other_redis_database,
    redacted,
)
from embedded.stack.supervisor import PATIENCE, STOP_SECONDS, Supervisor
from embedded.stack.zygote import StackZygote, warm_zygote
from gateway.errors import SettingsError
from gateway.settings import NOTICE, ScrapydSettings, Settings, kept_secret

# --- the process table, in the order of starting

#: The modules of forkable processes that are imported before the fork. Their import starts no thread, opens no
#: connection and makes no application.
IMPORTS = (
    *("gateway.application", "uvicorn.protocols.http.httptools_impl"),
    *("celery.bin.celery", "celery.apps.worker", "celery.apps.beat"),
    *("gateway.worker.app", "gateway.worker.beat"),
    *("gateway.tailer.eggs", "gateway.tailer.tailer_loop", "gateway.tailer.heartbeat"),
    "gateway.tailer.shipping",
)
#: By name of a store's process: the setting for a store that runs elsewhere.
STORES = {"redis": "REDIS_URL", "mongo": "MONGO_URI"}
NAMES = (*STORES, "scrapyd", "tailer", "worker", "beat", "gateway")
#: Settings that Scrapyd does not get, because it starts users' code: above all, the URLs of the stores.
_UNTOLD = frozenset(name.upper() for name in Settings.model_fields.keys() - ScrapydSettings.model_fields.keys())
_UNTOLD |= {"DISCOVERYBOT_KEY"}
#: Prefixes of URLs from which a requirement may be taken directly in the laptop stack.
ANY_SOURCE = ("https://", "http://", "ssh://")
#: Download handlers of well-known services, which fetch pages from outside of this machine's network.
SERVICES_HANDLERS = tuple(f"scrapy_zyte_api.handler.ScrapyZyteAPI{kind}DownloadHandler" for kind in ("HTTP", "HTTPS"))
#: Addresses that mean all addresses of this machine, each with the address at which the machine reaches itself.
_HERE = {"0.0.0.0": LOOPBACK, "::": "::1"}  # noqa: S104 - compared with, not bound


@dataclass(frozen=True)
class StackPlan:
    """All decisions that are made before anything starts."""

    settings: Settings
    home: Path
    redis: StackStore
    mongo: StackStore
    gateway_port: int
    scrapyd_address: str
    scrapyd_port: int
    scrapyd_password: str
    ports: dict[str, int]
    #: The processes that run here.
    names: frozenset[str] = frozenset(NAMES)
    #: The system user of the processes, if each project has a user of its own. Then only the keeper and the
    #: supervisor run as root.
    owner: User | None = None

    @property
    def gateway_url(self) -> str:
        """The address at which this machine reaches the gateway."""
        return _url(self.settings.gateway_address, self.gateway_port)

    @property
    def scrapyd_url(self) -> str:
        return _url(self.scrapyd_address, self.scrapyd_port)

    @property
    def environment(self) -> dict[str, str]:
        """The settings that every process of the stack gets."""
        variables = {
            "DISCOVERYBOT_HOME": str(self.home),
            "MONGO_URI": self.mongo.url,
            "REDIS_URL": self.redis.url,
            "GATEWAY_PORT": str(self.gateway_port),
            "SCRAPYD_PORT": str(self.scrapyd_port),
            "SCRAPYD_USERNAME": self.settings.scrapyd_username,
            "SCRAPYD_PASSWORD": self.scrapyd_password,
            "PYTHONUNBUFFERED": "1",
        }
        settings = self.settings
        variables |= {} if settings.export_to else {"EXPORT_TO": str(self.home / "exports")}
        broker = settings.broker_url or settings.rabbitmq_url or other_redis_database(self.redis.url, 2)
        # as absolute paths, because the processes run in another folder
        variables |= {name.upper(): str(path.absolute()) for name, path in self._paths.items()}
        # processes that run as `owner` cannot access root's home folder
        variables |= {"HOME": str(self.home)} if self.owner else {}
        urls = {name: url for name, url in (("HTTP_CACHE_REDIS_URL", self.cache_url), ("BROKER_URL", broker)) if url}
        return variables | urls | self._allowing

    @property
    def _paths(self) -> dict[str, Path]:
        """The settings that are paths, without the data folder."""
        given = {name: getattr(self.settings, name) for name in self.settings.model_fields_set}
        secrets = os.environ.get("DISCOVERYBOT_SECRETS")
        found = {name: value for name, value in given.items() if isinstance(value, Path)}
        found |= {"discoverybot_secrets": Path(secrets)} if secrets else {}
        return {name: path for name, path in found.items() if name != "discoverybot_home"}

    @property
    def cache_url(self) -> str | None:
        """The URL of the HTTP cache. Every spider sees it, so it must not contain the password of a store: it comes
        from its own setting, or names the user for spiders in our own Redis.
        """
        return self.settings.http_cache_redis_url or self.redis.cache_url

    @property
    def _allowing(self) -> dict[str, str]:
        """Settings that allow projects to build packages and to have pages fetched by a service, and that help those
        which do not declare what they import. They are set only if the operator is the only user: then neither can do
        anything that a spider could not do.
        """
        settings = self.settings
        is_users = {"scrapyd", "gateway"} <= self.names and settings.gateway_address in {LOOPBACK, "::1", "localhost"}
        if not is_users or settings.user_range:
            return {}
        allowed = {
            "project_build_sources": "true",
            "project_sources": ",".join(ANY_SOURCE),
            "project_lenient": "true",
            "crawl_allow_handlers": ",".join(SERVICES_HANDLERS),
        }
        return {name.upper(): value for name, value in allowed.items() if name not in settings.model_fields_set}

    @property
    def state(self) -> StackState:
        return StackState(
            gateway_url=self.gateway_url,
            scrapyd_url=self.scrapyd_url,
            scrapyd_username=self.settings.scrapyd_username,
            scrapyd_password=self.scrapyd_password,
            redis_url=self.redis.url,
            mongo_uri=self.mongo.url,
            broker_url=self.environment.get("BROKER_URL", ""),
            ports=self.ports,
        )


def _url(host: str, port: int) -> str:
    host = _HERE.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def processes(plan: StackPlan) -> list[Process]:
    """The processes that run here, in the order of their start: each needs only earlier ones."""
    found = [_of_owner(process, plan.owner) for process in _all_processes(plan) if process.name in plan.names]
    return [replace(one, needs=tuple(name for name in one.needs if name in plan.names)) for one in found]


def _of_owner(process: Process, owner: User | None) -> Process:
    if owner and process.name == "scrapyd":
        return replace(process, command=(sys.executable, "-m", "crawler.node.keeper", *process.command))
    return replace(process, user=owner)


def _all_processes(plan: StackPlan) -> list[Process]:
    """All processes: stores, node, workers, gateway."""
    env = plan.environment
    python, grace = sys.executable, plan.settings.crawl_stop_grace
    stores = [store.process for store in (plan.redis, plan.mongo) if store.process]
    needs = tuple(store.name for store in stores)
    key = (plan.settings.scrapyd_username, plan.scrapyd_password)
    door = http_answers(f"{plan.scrapyd_url}/daemonstatus.json", auth=key)
    # `--quiet` leaves out Celery's banner
    celery = (python, "-m", "celery", "--quiet", "-A", "celery_app")
    return [
        *stores,
        # without a pid file, because the pid file of a killed Scrapyd would prevent the next start
        Process("scrapyd", (python, "-m", "scrapyd", "--pidfile="), env, untold=_UNTOLD, probe=door,
                grace=grace + 5, death_signal=signal.SIGTERM, about=plan.scrapyd_url),
        Process("tailer", (python, "-m", "gateway.tailer"), env, needs, forkable=True),
        # after Scrapyd: otherwise the worker would send the first crawls too early, and then avoid the node for a
        # while
        Process("worker", (*celery, "worker"), env, (*needs, "scrapyd"), forkable=True),
        Process("beat", (*celery, "beat"), env, needs, forkable=True),
        Process("gateway", (python, "-m", "gateway.web"), {**env, NOTICE: MARK}, needs,
                probe=http_answers(f"{plan.gateway_url}/health/live"), death_signal=signal.SIGTERM, forkable=True,
                about=plan.gateway_url),
    ]  # fmt: skip


# --- what the command does

#: Folders in the data folder: the working folder of all processes, and the folder of their logs.
WORK, LOGS = "work", "logs"
#: The configuration of a node, in its working folder: Scrapyd reads the first file, Scrapy the second.
_CONFIGURATION = ("scrapyd.conf", "scrapy.cfg")
PASSWORD_FILE = "scrapyd-password"  # noqa: S105 - the name of a file
#: Exit code of a refusal: nothing was started.
REFUSED = 2
#: Seconds that the processes of a killed supervisor may take to end.
_LEFTOVER_PATIENCE = 15
_LOOK = 0.2


@dataclass(frozen=True)
class UpOptions:
    """The options of the command line."""

    quiet: bool = False
    #: Print the log of every process.
    verbose: bool = False
    #: Pick the gateway's and Scrapyd's ports, too.
    free_ports: bool = False
    #: The names of the processes to run here; empty: all.
    only: tuple[str, ...] = ()
    #: A file that is written when the stack is healthy, and again after each restart of a process.
    ready_file: Path | None = None
    #: The command that the user has typed, for messages.
    program: str = "discoverybot"


def up(settings: Settings, options: UpOptions) -> int:
    """Run the stack until it has to stop. Returns the exit code: 0, 1 (it never got ready), 2 (refused)."""
    began = time.monotonic()
    home = settings.discoverybot_home.absolute()
    try:
        # only the owner may read files in the data folder; all processes of the stack inherit the mask
        os.umask(0o077)
        home.mkdir(parents=True, exist_ok=True)
        with only_stack(home):
            _end_leftovers(home)
            if not settings.user_range:
                # with projects' users, Scrapyd itself removes the rights that these users must not have
                make_private(home)
            # first, because its imports take longer than everything else
            with warm_zygote(IMPORTS) as zygote:
                plan = make_plan(settings, home, free_ports=options.free_ports, only=options.only)
                return asyncio.run(_run(plan, options, zygote, began))
    except (AlreadyRunningError, PortTakenError, SettingsError, StackStoreError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the log has not begun
    except OSError as error:
        print(f"error: DISCOVERYBOT_HOME: {error}", file=sys.stderr)  # noqa: T201
    return REFUSED


def make_plan(settings: Settings, home: Path, *, free_ports: bool, only: tuple[str, ...] = ()) -> StackPlan:
    """The plan. Raises `SettingsError`, `PortTakenError` or `StackStoreError` if it cannot be carried out."""
    names = _names(settings, only)
    owner = _owner(settings, home) if "scrapyd" in names and settings.user_range else None
    # the variable that Scrapyd itself reads
    door = os.environ.get("SCRAPYD_BIND_ADDRESS") or LOOPBACK
    for name, setting, host in (
        ("gateway", "GATEWAY_HOST", settings.gateway_address),
        ("scrapyd", "SCRAPYD_BIND_ADDRESS", door),
    ):
        if name in names and (problem := cannot_bind(host)):
            raise SettingsError(f"{setting}: {host} is not an address of this machine ({problem})")
    last = StackState.read(home)
    ports = PortPicker(last.ports if last else {})
    if free_ports:
        gateway_port, scrapyd_port = ports.pick("gateway"), ports.pick("scrapyd")
    else:
        gateway_port, scrapyd_port = settings.gateway_port, settings.scrapyd_port
        if "gateway" in names:
            demand(gateway_port, settings.gateway_address, "the gateway", "GATEWAY_PORT")
        if "scrapyd" in names:
            demand(scrapyd_port, door, "Scrapyd", "SCRAPYD_PORT")
    with _acting_as(owner):
        return StackPlan(
            settings=settings,
            home=home,
            redis=choose_redis(settings, home, ports),
            mongo=choose_mongo(settings, home, ports),
            gateway_port=gateway_port,
            scrapyd_address=door,
            scrapyd_port=scrapyd_port,
            scrapyd_password=scrapyd_password(settings, home),
            ports=ports.picked,
            names=names,
            owner=owner,
        )


def _owner(settings: Settings, home: Path) -> User:
    """The owner of the data folder. Raises `SettingsError` if projects cannot have system users here, or if the
    folder belongs to root or to one of these users.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        raise SettingsError("NODE_UIDS: start `up` as root of a Linux, or leave it out: spiders then run as you")
    found = home.stat()
    if {found.st_uid, found.st_gid} & {0, *settings.user_range}:
        raise SettingsError(
            f"NODE_UIDS: {home} belongs to user {found.st_uid} and group {found.st_gid}, as whom the node would run: "
            "let it belong to one that is neither root nor of NODE_UIDS"
        )
    return User(found.st_uid, found.st_gid)


@contextmanager
def _acting_as(owner: User | None) -> Iterator[None]:
    """Within the block, new files belong to the owner."""
    if owner is None:
        yield
        return
    own = User(os.geteuid(), os.getegid())
    os.setegid(owner.gid)
    os.seteuid(owner.uid)
    try:
        yield
    finally:
        os.seteuid(own.uid)
        os.setegid(own.gid)


def _names(settings: Settings, only: tuple[str, ...]) -> frozenset[str]:
    """The processes to run. Raises `SettingsError` if a setting is missing for a process that runs elsewhere."""
    if unknown := set(only) - set(NAMES):
        raise SettingsError(f"--only: {', '.join(sorted(unknown))}: the processes are {', '.join(NAMES)}")
    if not only:
        return frozenset(NAMES)
    shared = {setting: setting.lower() for name, setting in STORES.items() if name not in only}
    shared |= {"SCRAPYD_PASSWORD": "scrapyd_password"}
    for setting, field in shared.items():
        if field not in settings.model_fields_set:
            raise SettingsError(f"{setting}: must be set, the same on all machines, because of --only")
    return frozenset(only)


def scrapyd_password(settings: Settings, home: Path) -> str:
    """`SCRAPYD_PASSWORD`, or else the password in the data folder, which is made at the first start."""
    return settings.scrapyd_password.get_secret_value() or kept_secret(home / PASSWORD_FILE)


async def _run(plan: StackPlan, options: UpOptions, zygote: StackZygote | None, began: float) -> int:
    table, state_file = processes(plan), plan.home / FILE
    log = _open_log(plan, options, [process.name for process in table])
    announced = False

    def note() -> None:
        state = plan.state.with_pids(supervisor.pids)
        state.supervisor_pid = psutil.Process().pid
        state.write(state_file)
        if announced and options.ready_file:
            state.write(options.ready_file)

    async def announce() -> None:
        nonlocal announced
        # a part of a platform is ready when its own processes are ready, because the other parts may not run yet
        if plan.names == frozenset(NAMES):
            await _until_healthy(plan, log)
        announced = True
        note()
        log.show(_banner(plan, options.program, time.monotonic() - began))

    with _acting_as(plan.owner):
        work = make_work_folder(plan.home, is_shared=plan.owner is not None)
    supervisor = Supervisor(
        table,
        cwd=work,
        log=log,
        backoff_max=plan.settings.discoverybot_restart_backoff_max,
        stray_grace=plan.settings.crawl_stop_grace,
        # spiders with a longer grace need a longer stop
        stop_seconds=max(STOP_SECONDS, plan.settings.crawl_stop_grace + 3),
        on_start=note,
        zygote=zygote,
    )
    with closing(log):
        code = await supervisor.run(announce)
    plan.state.write(state_file)
    return code


def _open_log(plan: StackPlan, options: UpOptions, names: list[str]) -> StackLog:
    """Open the log, and write the first lines before any process starts."""
    # root writes no files there, because it would follow links of the folder's owner: its log is only printed
    folder = None if plan.owner else plan.home / LOGS
    if folder:
        folder.mkdir(mode=0o700, exist_ok=True)
    verbose, debug = options.verbose or folder is None, plan.settings.log_level == "debug"
    log = StackLog(names, quiet=options.quiet, verbose=verbose, debug=debug, folder=folder)
    if not options.quiet:
        log.show(f"Starting DiscoveryBot; its data is in {plan.home}")
    for line in _decided(plan):
        log.say(line)
    return log


def _decided(plan: StackPlan) -> Iterator[str]:
    """Lines that report the plan to the operator."""
    for name, store in (("redis", plan.redis), ("mongo", plan.mongo)):
        if store.process is None:
            yield f"{name}: {store.origin} at {redacted(store.url)}"
    if "scrapyd" not in plan.names:
        return
    if not plan.cache_url:
        yield "HTTP cache: none. HTTP_CACHE_REDIS_URL names a Redis that spiders may see"
    if not (STORES.keys() <= plan.names or plan.owner):
        yield "Spiders run as this user, and can read its files, with the stores' passwords. NODE_UIDS changes that"


def make_work_folder(home: Path, *, is_shared: bool) -> Path:
    """Make the working folder of the processes. It has the configuration of a node, and no files that could be
    imported. Raises `OSError`.

    The configuration is copied from the wheel (beside `embedded`) or the clone (above it). `is_shared`: other users
    can read the folder, because with `NODE_UIDS` crawls run as other users.
    """
    work = home / WORK
    work.mkdir(exist_ok=True)
    work.chmod(0o755 if is_shared else 0o700)
    package = Path(embedded.__file__).resolve().parent
    for name in _CONFIGURATION:
        source = next(path for path in (package / name, package.parent / name) if path.exists())
        write_private(work / name, source.read_text(encoding="utf-8"))
        (work / name).chmod(0o644 if is_shared else 0o600)
    return work


async def _until_healthy(plan: StackPlan, log: StackLog) -> None:
    probe = http_answers(f"{plan.gateway_url}/health", accept=(200, 503), judge=healthy)
    reported_at = time.monotonic()
    while (missing := await probe()) is not None:
        if time.monotonic() - reported_at > PATIENCE:
            reported_at = time.monotonic()
            log.say(f"waiting for the stack to be healthy: {missing}")
        await asyncio.sleep(_LOOK)


def _banner(plan: StackPlan, program: str, seconds: float) -> str:
    if "gateway" not in plan.names:
        return _short_banner(plan, seconds)
    user, password = plan.settings.scrapyd_username, plan.scrapyd_password
    keys = ""
    if plan.settings.serves_others:
        keys = f"""
It also serves other machines, at {plan.settings.gateway_host}, and refuses requests without a key. The first key was
shown above when it was made; `{program} keys create` makes more. The command takes its key from DISCOVERYBOT_KEY.
"""
    port = "" if plan.gateway_url.endswith(":8001") else f"DISCOVERYBOT_URL={plan.gateway_url} "
    return f"""
DiscoveryBot is ready ({seconds:.1f} s)

  Console    {plan.gateway_url}/
  API        {plan.gateway_url}
  API docs   {plan.gateway_url}/docs
  Scrapyd    {plan.scrapyd_url}   user {user}, password {password}
  Data       {plan.home}
  Logs       {"as printed" if plan.owner else plan.home / LOGS}
{keys}
Try, in another terminal:

  {port}{program} crawl https://example.com --depth 1

Ctrl-C stops everything.
"""


def _short_banner(plan: StackPlan, seconds: float) -> str:
    """The banner for a part of the platform."""
    lines = [f"Ready ({seconds:.1f} s): {', '.join(process.name for process in processes(plan))}"]
    if "scrapyd" in plan.names:
        lines.append(f"Workers reach this node at {plan.settings.node_base_url} (NODE_URL)")
    return "\n".join(["", *lines, "", "Ctrl-C stops everything.", ""])


def _end_leftovers(home: Path) -> None:
    """End processes that have outlived a killed supervisor, because they still use its ports and files."""
    last = StackState.read(home)
    leftovers = last.leftovers() if last else []
    for process in leftovers:
        print(f"ending process {process.pid}, left over from a stack that was killed", file=sys.stderr)  # noqa: T201
        with suppress(psutil.Error):
            process.send_signal(signal.SIGTERM)
    _, stubborn = psutil.wait_procs(leftovers, timeout=_LEFTOVER_PATIENCE)
    for process in stubborn:
        with suppress(psutil.Error):
            process.kill()
