from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo import MongoClient
from stack import wait_until

from gateway.clock import utc_now
from gateway.stores.mongo import ServerClock, _ServerTimes, connect


class OtherServer:
    """The embedded server, as it would answer if its machine's clock were turned."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self.ahead = timedelta()
        self.asked = 0
        self._listener = _ServerTimes()
        self.client = SimpleNamespace(options=SimpleNamespace(event_listeners=[self._listener]))

    def command(self, name: str) -> dict[str, datetime]:
        self.asked += 1
        return {"localTime": self.database.command(name)["localTime"] + self.ahead}

    def is_looked_at(self) -> None:
        """Whether it is there: at once, and by another thread."""
        told = self._listener.on_server_time
        assert told is not None
        told(datetime.now(UTC).replace(tzinfo=None) + self.ahead, 0.001)


@pytest.fixture
def server(embedded_uri: str) -> Any:
    with MongoClient[dict[str, Any]](embedded_uri) as client:
        yield OtherServer(client.admin)


def distance(clock: ServerClock, ahead: timedelta) -> timedelta:
    return abs(clock() - (datetime.now(UTC) + ahead))


def test_it_shows_the_servers_time_and_not_this_machines(server: Any) -> None:
    server.ahead = timedelta(minutes=-7)
    assert distance(ServerClock(server), server.ahead) < timedelta(seconds=1)


def test_small_differences_are_the_measurements_own(server: Any) -> None:
    server.ahead = timedelta(milliseconds=20)
    clock = ServerClock(server)
    # of several looks, because somebody else may be given the processor between its time and this machine's
    assert min(distance(clock, timedelta()) for _ in range(50)) < timedelta(milliseconds=15)


def test_it_follows_a_server_whose_clock_is_turned_once_it_is_measured_again(server: Any) -> None:
    clock = ServerClock(server)
    clock()
    server.ahead = timedelta(seconds=5)
    assert distance(clock, timedelta()) < timedelta(seconds=1)
    clock.measure()
    assert distance(clock, server.ahead) < timedelta(seconds=1)


def test_it_follows_a_server_whose_clock_is_turned_by_what_it_answers_when_it_is_looked_at(server: Any) -> None:
    clock = ServerClock(server)
    clock()
    server.ahead = timedelta(seconds=5)
    server.is_looked_at()
    wait_until(lambda: distance(clock, server.ahead) < timedelta(seconds=1), what="the turned clock")


def test_it_is_kept_by_looking_whether_the_server_is_there(embedded_uri: str) -> None:
    database = connect(embedded_uri, heartbeat=0.5)
    with database.client:
        clock = ServerClock(database)
        clock()
        clock.turn(timedelta(seconds=5))
        wait_until(lambda: distance(clock, timedelta()) < timedelta(seconds=1), what="the server's time")


def test_turning_this_machines_clock_changes_nothing(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ServerClock(server)
    before = utc_now()
    monkeypatch.setattr("gateway.clock.datetime", _Turned)
    assert utc_now() - before > timedelta(seconds=4)
    assert clock() - before < timedelta(seconds=4)


class _Turned(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]  # aware like every time of ours
        return datetime.now(tz) + timedelta(seconds=5)


def test_nothing_is_asked_where_nothing_has_changed(server: Any) -> None:
    clock = ServerClock(server)
    clock()
    for _ in range(20):
        server.is_looked_at()
    # now and then somebody else is given the processor in between
    assert 1 <= server.asked <= 10


def test_a_server_that_cannot_be_asked_is_asked_again(server: Any) -> None:
    clock, database = ServerClock(server), server.database
    server.database = None
    with pytest.raises(AttributeError):
        clock()
    server.database = database
    assert distance(clock, timedelta()) < timedelta(seconds=1)
