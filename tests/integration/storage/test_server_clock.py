from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import MongoClient

from gateway.domain.clock import utc_now
from gateway.storage.client import ServerClock


class OtherServer:
    """The embedded server, as it would answer if its machine's clock were turned."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self.ahead = timedelta()
        self.asked = 0

    def command(self, name: str) -> dict[str, datetime]:
        self.asked += 1
        return {"localTime": self.database.command(name)["localTime"] + self.ahead}


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


def test_it_is_measured_again_only_now_and_then(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ServerClock(server)
    clock()
    server.ahead = timedelta(seconds=5)
    clock.keep()
    assert distance(clock, timedelta()) < timedelta(seconds=1)
    monkeypatch.setattr("gateway.storage.client.MEASURE_SECONDS", 0.0)
    clock.keep()
    assert distance(clock, server.ahead) < timedelta(seconds=1)


def test_turning_this_machines_clock_changes_nothing(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ServerClock(server)
    before = utc_now()
    monkeypatch.setattr("gateway.domain.clock.datetime", _Turned)
    assert utc_now() - before > timedelta(seconds=4)
    assert clock() - before < timedelta(seconds=4)


class _Turned(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]  # aware like every time of ours
        return datetime.now(tz) + timedelta(seconds=5)


def test_keeping_it_asks_once_where_nothing_has_changed(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.storage.client.MEASURE_SECONDS", 0.0)
    clock = ServerClock(server)
    clock()
    for _ in range(20):
        clock.keep()
    # now and then somebody else is given the processor in between
    assert 21 <= server.asked <= 30


def test_a_server_that_cannot_be_asked_is_asked_again(server: Any) -> None:
    clock, database = ServerClock(server), server.database
    server.database = None
    with pytest.raises(AttributeError):
        clock()
    server.database = database
    assert distance(clock, timedelta()) < timedelta(seconds=1)
