"""How processes connect to MongoDB, repeat writes, and find out whether it can be reached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pymongo
from attrs import define, field
from pymongo import MongoClient, ReadPreference, monitoring
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import (
    BulkWriteError,
    ConnectionFailure,
    DuplicateKeyError,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
)
from pymongo.results import DeleteResult, UpdateResult
from pymongo.topology_description import TopologyDescription

from gateway.clock import SteadyClock, deadline, utc_now
from gateway.errors import UnavailableError
from gateway.stores.unanswered import note_unanswered

Document = dict[str, Any]
DEFAULT_DATABASE = "discoverybot"
#: Seconds after which a server that is not found counts as not reachable.
_SELECTION = 3.0
DUPLICATE_KEY = 11000
#: MongoDB's error codes (see its `error_codes.yml`) for temporary states: it is stopping, electing a primary, busy or
#: full. The request is not at fault, and can be repeated.
_PASSING = frozenset(
    {
        *(6, 7, 89, 9001, 11602),  # a host or the network between its servers failed
        *(91, 189, 10058, 10107, 11600, 11601, 13435, 13436),  # it is stopping, or is not the primary (any more)
        *(24, 46, 112, 134, 290),  # it conflicted with other operations
        *(50, 262),  # it took too long
        *(43, 175, 237),  # the cursor is lost
        14031,  # its disk is full
    }
)
#: MongoDB's error codes for a document that it can never store.
UNSTORABLE = frozenset({2, 9, 14, 15, 22, 52, 53, 54, 55, 56, 57, 121, 10334, 17280, 17419})


def connect(uri: str, *, timeout: float = 5.0, heartbeat: float = 3.0) -> Database[Document]:
    """The database that `uri` names. Does not wait for the server.

    An operation takes at most `timeout` seconds in all: to find the server, to connect, to send, on the server itself
    (`maxTimeMS`) and to answer; `within` sets another limit for a block. A heartbeat asks every `heartbeat` seconds
    whether the server is there; if it gets no answer, existing connections are not used any more.

    Writes are journalled and acknowledged by a majority; reads go to the primary, and find only what a majority has.
    The URI cannot change this, because what users were told must not be lost, and decisions must see the last write.
    Writes are retried, unless the URI says `retryWrites=false`, which is for servers that do not support retries.
    """
    client: MongoClient[Document] = MongoClient(
        uri,
        event_listeners=[_Unanswered(), _ServerTimes()],
        # in this mode the server answers a heartbeat at once, so it is known to which moment its time belongs
        serverMonitoringMode="poll",
        tz_aware=True,
        tzinfo=UTC,
        # a time that Python cannot represent must not keep the rest of a batch from being read
        datetime_conversion="DATETIME_AUTO",
        unicode_decode_error_handler="replace",
        w="majority",
        journal=True,
        readConcernLevel="majority",
        retryReads=True,
        appname="discoverybot",
        timeoutMS=int(timeout * 1000),
        serverSelectionTimeoutMS=int(min(timeout, _SELECTION) * 1000),
        connectTimeoutMS=int(min(timeout, _SELECTION) * 1000),
        heartbeatFrequencyMS=int(heartbeat * 1000),
    )
    return client.get_default_database(DEFAULT_DATABASE, read_preference=ReadPreference.PRIMARY)


class _Unanswered(monitoring.CommandListener):
    """Notes commands that got no answer, because PyMongo repeats them silently where it can."""

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        pass

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        # an error that the server itself has answered has no `errtype`
        if event.failure.get("errtype") in {"AutoReconnect", "NetworkTimeout"}:
            note_unanswered("MongoDB")


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """A block in which all calls to MongoDB, Redis and nodes together take at most `seconds`. For MongoDB this may
    also be longer than the limit that `connect` has set, for a long operation.
    """
    with deadline(seconds), pymongo.timeout(seconds):
        yield


def round_trip(database: Database[Document]) -> float:
    """Seconds that the server's answers to heartbeats take, as a moving average; 0 if none was answered."""
    found = database.client.topology_description
    # a database in memory, as in tests, has no server
    servers = found.server_descriptions().values() if isinstance(found, TopologyDescription) else ()
    return max((one.round_trip_time or 0.0 for one in servers if one.is_writable), default=0.0)


class _ServerTimes(monitoring.ServerHeartbeatListener):
    """Reads the server's time from its answer to each heartbeat."""

    def __init__(self) -> None:
        #: Called with the server's time and the seconds that its answer took.
        self.on_server_time: Callable[[datetime, float], None] | None = None

    def started(self, event: monitoring.ServerHeartbeatStartedEvent) -> None:
        pass

    def failed(self, event: monitoring.ServerHeartbeatFailedEvent) -> None:
        pass

    def succeeded(self, event: monitoring.ServerHeartbeatSucceededEvent) -> None:
        if self.on_server_time is not None and event.reply.is_writable:
            self.on_server_time(event.reply.document["localTime"], event.duration)


class ServerClock(SteadyClock):
    """A clock that shows the database server's time, so that the processes on all machines have the same time,
    however their machines' clocks are set. The first reading asks the server, and raises PyMongo's errors. After
    that, each heartbeat's answer is compared with this clock, because the server's clock may be set, or another
    server may answer.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._measuring = threading.Lock()
        self._is_measured = False
        #: Called after this clock was wrong and has been corrected.
        self.on_turn: Callable[[], None] = lambda: None
        # start with this machine's clock: if both agree, it is kept, because a measurement is less exact
        super().__init__(utc_now())

    def __call__(self) -> datetime:
        if not self._is_measured:
            self.measure()
        return super().__call__()

    def measure(self) -> None:
        """Ask the server for its time, twice more if it differs from this clock, and correct this clock."""
        with self._measuring:
            answer = self._ask()
            if _differ(*answer):
                answer = min((answer, self._ask(), self._ask()), key=lambda found: found[1])
            if _differ(*answer):
                self.turn(answer[0])
                self.on_turn()
            self._is_measured = True
        for listener in self._database.client.options.event_listeners:
            if isinstance(listener, _ServerTimes):
                listener.on_server_time = self._compare

    def _compare(self, server: datetime, seconds: float) -> None:
        """Measure again if the server's time in a heartbeat's answer differs. The heartbeat's thread calls this."""
        underway = timedelta(seconds=seconds) / 2
        if _differ(server.replace(tzinfo=UTC) + underway - super().__call__(), underway):
            # measure before correcting the clock, because this thread may have been late. Another thread measures,
            # because a measurement needs the heartbeat's thread
            threading.Thread(target=self._measure_again, name="server-clock", daemon=True).start()

    def _measure_again(self) -> None:
        with suppress(PyMongoError):
            self.measure()

    def _ask(self) -> tuple[timedelta, timedelta]:
        """How far the server's clock is ahead of this one, and how exact this is."""
        before = super().__call__()
        # the client's options do not apply to commands: this time has no zone
        server = self._database.command("hello")["localTime"].replace(tzinfo=UTC)
        underway = (super().__call__() - before) / 2
        return server - (before + underway), underway


def _differ(ahead: timedelta, exact_to: timedelta) -> bool:
    """Whether the clocks differ by more than the error of the measurement."""
    return abs(ahead) > max(timedelta(milliseconds=50), exact_to)


def is_passing(error: Exception) -> bool:
    """Whether the database, or the connection to it, is at fault, and not the request."""
    if isinstance(error, ConnectionFailure | WriteConcernError):
        return True
    if isinstance(error, BulkWriteError):
        codes = {problem["code"] for problem in error.details["writeErrors"]}
        return bool(error.details.get("writeConcernErrors")) or not codes.isdisjoint(_PASSING)
    if isinstance(error, OperationFailure) and error.code in _PASSING:
        return True
    return isinstance(error, PyMongoError) and (error.timeout or error.has_error_label("RetryableWriteError"))


# --- repeats writes that the driver does not repeat itself: writes of several documents, and all writes to servers
# that do not support retryable writes

Result = TypeVar("Result")


class Repeating:
    """Writes to a collection that can safely be carried out twice. If a connection breaks before the answer, or the
    primary steps down, a write is sent once more, in the time that it has left.

    Counts in results are those of the repetition.
    """

    def __init__(self, collection: Collection[Document]) -> None:
        self._collection = collection

    def insert_one(self, document: Document, *, ours: Sequence[str] = ()) -> None:
        """Insert the document. If the write is repeated, a stored document with its id counts as this one if the
        fields `ours` are equal.

        Raises `DuplicateKeyError` if another document has its id or a unique key.
        """

        def again() -> None:
            try:
                self._collection.insert_one(document)
            except DuplicateKeyError:
                same = {"_id": document["_id"], **{name: document[name] for name in ours}}
                if self._collection.find_one(same, {"_id": 1}) is None:
                    raise

        self._twice(lambda: _nothing(self._collection.insert_one(document)), again)

    def insert_many(self, documents: Sequence[Document]) -> None:
        """Insert the documents, in any order. Raises `BulkWriteError`. If an answer was lost, all documents are sent
        again, and the error also names those that the first try had already inserted.
        """
        self._twice(lambda: _nothing(self._collection.insert_many(documents, ordered=False)))

    def change_one(self, query: Document, update: Document, *, done: Document) -> bool:
        """Change one document. Returns whether this call has changed it. `done` is a query that matches the document
        only after this change, to find out if an answer was lost.
        """

        def again() -> bool:
            return write() or self._collection.find_one(done, {"_id": 1}) is not None

        def write() -> bool:
            return self._collection.update_one(query, update).modified_count == 1

        return self._twice(write, again)

    def update_one(self, query: Document, update: Document) -> UpdateResult:
        return self._twice(lambda: self._collection.update_one(query, update))

    def update_many(self, query: Document, update: Document) -> UpdateResult:
        return self._twice(lambda: self._collection.update_many(query, update))

    def delete_many(self, query: Document) -> DeleteResult:
        return self._twice(lambda: self._collection.delete_many(query))

    def delete_of_jobs(self, job_ids: Sequence[str], batch: int) -> None:
        """Delete all documents of these jobs, `batch` at a time, so that other writes do not wait until a million are
        deleted.
        """
        query = of_jobs(job_ids)
        while job_ids:
            found = [one["_id"] for one in self._collection.find(query, {"_id": 1}, limit=batch, batch_size=batch)]
            if found:
                self.delete_many({"_id": {"$in": found}})
            if len(found) < batch:
                return

    def find_one_and_update(self, query: Document, update: Document, **options: Any) -> Document | None:
        return self._twice(lambda: self._collection.find_one_and_update(query, update, **options))

    def _twice(self, write: Callable[[], Result], again: Callable[[], Result] | None = None) -> Result:
        began = time.monotonic()
        try:
            return write()
        except PyMongoError as error:
            if error.timeout or not is_passing(error):
                raise
            left = (self._collection.database.client.options.timeout or _SELECTION) - (time.monotonic() - began)
            if left <= 0:
                raise
            with pymongo.timeout(left):
                return (again or write)()


def _nothing(_: object) -> None:
    """Drop a result, so that no caller can use it."""


def one_of(values: Sequence[str]) -> str | Document:
    """A condition that matches each of these values. A single value is an equality, so that an index gives documents
    in the order of its further fields.
    """
    return values[0] if len(values) == 1 else {"$in": list(values)}


def of_job(job_id: str) -> Document:
    """The documents whose ids are `<job>:<anything>`."""
    return {"_id": {"$gt": f"{job_id}:", "$lt": f"{job_id};"}}


def of_jobs(job_ids: Iterable[str]) -> Document:
    """As `of_job`, for several jobs."""
    return {"$or": [of_job(job_id) for job_id in job_ids]}


def refusals(error: BulkWriteError, expected: Container[int]) -> dict[int, int]:
    """Why documents were refused (MongoDB's codes), by their positions in the write.

    Raises `error` if one of the codes is not `expected`, or if too few servers have confirmed the other writes.
    """
    codes = {problem["index"]: problem["code"] for problem in error.details["writeErrors"]}
    if error.details.get("writeConcernErrors") or not all(code in expected for code in codes.values()):
        raise error
    return codes


@contextmanager
def mongo_errors() -> Iterator[None]:
    """Turn errors that mean that MongoDB is not available now into `UnavailableError`."""
    try:
        yield
    except PyMongoError as error:
        if not is_passing(error):
            raise
        if isinstance(error, ConnectionFailure) or not error.timeout:
            raise UnavailableError(f"the database is not available ({type(error).__name__})") from error
        raise UnavailableError("this took the database too long; ask for less, or later") from error


# --- whether MongoDB takes writes. PyMongo's own heartbeats show it, so that no request has to wait to find out

#: Seconds between two heartbeats. A heartbeat, or a request that succeeds, notices the end of an outage.
HEARTBEAT_SECONDS = 1.0
#: Seconds between two checks of the heartbeats' results.
LOOK_SECONDS = 0.25
#: If no server has taken writes for this many seconds, MongoDB counts as away. Requests wait through a shorter gap,
#: such as a broken connection, which counts as a lost server until the next heartbeat, or a quick election of a
#: primary.
GRACE_SECONDS = 1.0


@define(eq=False, repr=False, slots=False)
class Presence:
    """Knows whether MongoDB `is_away`, which any thread may ask. One task must call `look` every `LOOK_SECONDS`."""

    _client: MongoClient[Any]
    _monotonic: Callable[[], float] = time.monotonic
    _gone_since: float | None = field(init=False, default=None)

    def look(self) -> None:
        if not is_gone(self._client.topology_description):
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = self._monotonic()

    @property
    def is_away(self) -> bool:
        """Whether MongoDB is away. False again from the first answered heartbeat on, even before the next `look`."""
        since = self._gone_since
        if since is None or self._monotonic() - since < GRACE_SECONDS:
            return False
        return is_gone(self._client.topology_description)


def is_gone(found: TopologyDescription) -> bool:
    """Whether every server has been asked and none takes writes. A replica set without a primary counts as gone,
    because all our writes and reads go to the primary.
    """
    if found.has_writable_server():
        return False
    return all(server.is_server_type_known or server.error for server in found.server_descriptions().values())
