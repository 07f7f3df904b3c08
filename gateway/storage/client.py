"""The one way to connect to MongoDB."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, timedelta
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import ConnectionFailure, ExecutionTimeout, PyMongoError

from gateway.domain.clock import SteadyClock, steady_seconds, utc_now
from gateway.domain.errors import UnavailableError

Document = dict[str, Any]
DEFAULT_DATABASE = "discoverybot"
#: Seconds between two measurements of the server's clock.
MEASURE_SECONDS = 30.0
#: Times that the server is asked for its time: the quickest answer is the most exact one.
_ASKED = 3


def connect(uri: str, *, timeout: float = 5.0, heartbeat: float = 10.0) -> Database[Document]:
    """The database that `uri` names. Does not wait for the server; every call is bounded by `timeout` seconds. While
    nobody calls, whether the server is there is looked at every `heartbeat` seconds.

    Journalled majority writes, because an answer to a user is a promise.
    """
    client: MongoClient[Document] = MongoClient(
        uri,
        tz_aware=True,
        tzinfo=UTC,
        w="majority",
        appname="discoverybot",
        serverSelectionTimeoutMS=int(timeout * 1000),
        connectTimeoutMS=int(timeout * 1000),
        heartbeatFrequencyMS=int(heartbeat * 1000),
        socketTimeoutMS=30_000,
        waitQueueTimeoutMS=int(timeout * 1000),
    )
    return client.get_default_database(DEFAULT_DATABASE)


class ServerClock(SteadyClock):
    """Shows the database server's time, the one that all processes on all machines share, whoever turns this
    machine's clock. Raises what PyMongo raises while the server cannot be asked for the first time.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._measuring = threading.Lock()
        # where both agree this machine's is the finer one
        super().__init__(utc_now())
        self.measure()

    def keep(self) -> None:
        """Measure again if that was long ago: the server's clock, too, may be turned. To be called now and then."""
        if steady_seconds() - self._measured_at >= MEASURE_SECONDS:
            self.measure()

    def measure(self) -> None:
        """Ask the server for its time."""
        with self._measuring:
            self._measured_at = steady_seconds()
            ahead, exact_to = min((self._ask() for _ in range(_ASKED)), key=lambda answer: answer[1])
            # below that it is the measurement that is off, not the clock
            if abs(ahead) > max(timedelta(milliseconds=50), exact_to):
                self.turn(ahead)

    def _ask(self) -> tuple[timedelta, timedelta]:
        """How far the server's clock is ahead of this one, and how exactly that is known."""
        before = self()
        # commands do not share the client's options: this time comes without its zone
        server = self._database.command("hello")["localTime"].replace(tzinfo=UTC)
        underway = (self() - before) / 2
        return server - (before + underway), underway


@contextmanager
def truth_store_errors() -> Iterator[None]:
    """Turn "MongoDB is away" into `UnavailableError`; a caller who asks again may be lucky."""
    try:
        yield
    except (ConnectionFailure, ExecutionTimeout) as error:
        raise UnavailableError(f"the database is not available ({type(error).__name__})") from error
    except PyMongoError as error:
        if error.timeout:
            raise UnavailableError("the database did not answer in time") from error
        raise
