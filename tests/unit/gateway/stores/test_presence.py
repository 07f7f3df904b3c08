from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import AutoReconnect
from pymongo.hello import Hello
from pymongo.server_description import ServerDescription
from pymongo.topology_description import TOPOLOGY_TYPE, TopologyDescription
from stack import wait_until

from gateway.stores.mongo import GRACE_SECONDS, Presence, is_gone

A, B = ("a", 27017), ("b", 27017)
SET = {"ok": 1, "setName": "rs", "hosts": ["a:27017", "b:27017"], "maxWireVersion": 21}


def found(kind: int, *servers: ServerDescription) -> TopologyDescription:
    described = {server.address: server for server in servers}
    settings: Any = MongoClient(connect=False)._topology_settings
    return TopologyDescription(kind, described, "rs", None, None, settings)


def member(address: tuple[str, int], **fields: object) -> ServerDescription:
    return ServerDescription(address, Hello({**SET, "me": f"{address[0]}:27017", **fields}))


def lost(address: tuple[str, int]) -> ServerDescription:
    return ServerDescription(address, error=AutoReconnect("gone"))


def test_a_replica_set_is_gone_without_a_primary_once_every_member_was_asked() -> None:
    secondary, primary = member(A, secondary=True), member(B, isWritablePrimary=True)
    without, with_one = TOPOLOGY_TYPE.ReplicaSetNoPrimary, TOPOLOGY_TYPE.ReplicaSetWithPrimary
    assert not is_gone(found(with_one, lost(A), primary))
    assert not is_gone(found(without, secondary, ServerDescription(B)))
    assert is_gone(found(without, secondary, lost(B)))
    assert is_gone(found(without, lost(A), lost(B)))


def test_a_server_that_was_not_asked_yet_is_not_gone() -> None:
    assert not is_gone(found(TOPOLOGY_TYPE.Unknown, ServerDescription(A)))
    assert is_gone(found(TOPOLOGY_TYPE.Single, lost(A)))


@pytest.fixture
def client_of_nothing() -> Iterator[MongoClient[dict[str, Any]]]:
    """Of a port that nobody listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with MongoClient[dict[str, Any]]("127.0.0.1", port, heartbeatFrequencyMS=500) as client:
            wait_until(lambda: is_gone(client.topology_description), what="the first heartbeat")
            yield client


def test_it_is_away_once_it_was_gone_for_a_while(client_of_nothing: MongoClient[dict[str, Any]]) -> None:
    now = 100.0
    presence = Presence(client_of_nothing, lambda: now)
    assert not presence.is_away
    presence.look()
    assert not presence.is_away
    now += GRACE_SECONDS
    presence.look()
    assert presence.is_away
