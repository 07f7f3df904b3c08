"""The one way to connect to MongoDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, timedelta
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import ConnectionFailure, ExecutionTimeout, PyMongoError

from gateway.domain.clock import Clock, offset_clock, utc_now
from gateway.domain.errors import UnavailableError

Document = dict[str, Any]
DEFAULT_DATABASE = "discoverybot"


def connect(uri: str, *, timeout: float = 5.0) -> Database[Document]:
    """The database that `uri` names. Does not wait for the server; every call is bounded by `timeout` seconds.

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
        socketTimeoutMS=30_000,
        waitQueueTimeoutMS=int(timeout * 1000),
    )
    return client.get_default_database(DEFAULT_DATABASE)


def server_clock(database: Database[Document]) -> Clock:
    """A clock that shows the database server's time: the one that all processes on all machines share."""
    before = utc_now()
    # commands do not share the client's options: this time comes without its zone
    server = database.command("hello")["localTime"].replace(tzinfo=UTC)
    after = utc_now()
    offset = server - (before + (after - before) / 2)
    # below that it is the measurement that is off, not the clock
    return offset_clock(offset) if abs(offset) > timedelta(milliseconds=50) else utc_now


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
