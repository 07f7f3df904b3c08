"""Keys: found, used, revoked; and whoever is killed on the way may do it again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from killed import killed_everywhere
from pymongo.database import Database
from stores import embedded_mongo

from gateway.access.key_store import FIRST, USE_NOTED_EVERY, KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.stores.mongo import connect

STORY = """
from gateway.clock import utc_now
from gateway.access.key_store import KeyIssue
from gateway.stores.mongo import connect
from gateway.access.key_store import KeyStore

def tell(uri):
    keys = KeyStore(connect(uri))
    KeyIssue(keys).issue_first()
    assert keys.use("first").user_id == "operator"
    keys.end_session("first", "abc", utc_now())
    assert keys.revoke("first").revoked_at
"""


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_mongo(tmp_path_factory.mktemp("mongo")) as uri:
        yield str(uri)


@pytest.fixture
def database(uri: str, request: pytest.FixtureRequest) -> Iterator[Database[dict[str, Any]]]:
    database = connect(uri)
    yield database.client[f"keys-{abs(hash(request.node.name))}"]
    database.client.close()


def test_of_a_key_only_the_hash_of_its_secret_is_kept(database: Database[dict[str, Any]]) -> None:
    keys = KeyStore(database)
    expiry = utc_now() + timedelta(days=1)
    issued = KeyIssue(keys).issue("ann", [Scope.CRAWL], expires_at=expiry, note="laptop")
    assert issued.token.secret not in str(list(database["keys"].find()))
    found = keys.get(issued.key.id)
    assert found is not None
    assert (found.user_id, found.scopes, found.note) == ("ann", {Scope.CRAWL}, "laptop")
    assert issued.token.opens(found)
    assert not issued.token._replace(secret="0" * 48).opens(found)
    assert not issued.token.opens(None)
    assert (found.is_valid(utc_now()), found.is_valid(expiry)) == (True, False)


@pytest.mark.parametrize(("scope", "mark"), [(Scope.READ_ALL, "reads_all"), (Scope.AGENT, "acts_as_agent")])
def test_a_key_of_a_newer_scope_is_to_the_release_before_one_that_reads_its_users_own(
    database: Database[dict[str, Any]], scope: Scope, mark: str
) -> None:
    keys = KeyStore(database)
    for scopes in ({scope}, {scope, Scope.CRAWL}):
        key = KeyIssue(keys).issue("anne", scopes).key
        stored = database["keys"].find_one({"_id": key.id}) or {}
        assert (set(stored["scopes"]), stored[mark]) == ({Scope.READ, *scopes} - {scope}, True)
        assert keys.get(key.id) == key


def test_a_key_for_projects_is_to_the_release_before_one_that_has_expired(database: Database[dict[str, Any]]) -> None:
    keys, expiry = KeyStore(database), utc_now() + timedelta(days=1)
    for expires_at in (None, expiry):
        key = KeyIssue(keys).issue("anne", [Scope.READ_ALL], projects=["shop", "news"], expires_at=expires_at).key
        stored = database["keys"].find_one({"_id": key.id}) or {}
        # what that one reads: no scope by any of its marks, and no longer valid
        assert (stored["scopes"], stored["expires_at"] <= utc_now()) == ([], True)
        assert not {"reads_all", "acts_as_agent", "within_budget", "budget"} & stored.keys()
        assert keys.get(key.id) == key
        assert (key.projects, key.scopes, key.expires_at) == (("news", "shop"), {Scope.READ_ALL}, expires_at)
        database["keys"].update_one({"_id": key.id}, {"$unset": {"projects": ""}})
        left = keys.get(key.id)
        assert left is not None
        assert (left.scopes, left.is_valid(utc_now())) == (frozenset(), False)


def test_of_many_gateways_that_start_at_once_one_makes_the_first_key(database: Database[dict[str, Any]]) -> None:
    keys = KeyStore(database)
    first = KeyIssue(keys).issue_first()
    assert first is not None
    assert first.key.id == FIRST
    assert KeyIssue(keys).issue_first() is None
    assert not keys.insert(first.key._replace(sha256="another's"))
    keys.revoke(FIRST)
    assert keys.any()
    assert KeyIssue(keys).issue_first() is None


def test_the_use_of_a_key_is_noted_now_and_then(database: Database[dict[str, Any]]) -> None:
    now = utc_now()
    moments: list[datetime] = [now]
    keys = KeyStore(database, clock=lambda: moments[-1])
    key_id = KeyIssue(keys).issue("ann", [Scope.READ]).key.id

    def noted() -> datetime | None:
        keys.use(key_id)
        found = keys.get(key_id)
        assert found
        return found.last_used_at

    first = noted()
    moments.append(now + USE_NOTED_EVERY / 2)
    assert noted() == first
    moments.append(now + USE_NOTED_EVERY * 2)
    assert (last := noted()) != first
    keys.revoke(key_id)
    moments.append(now + USE_NOTED_EVERY * 4)
    assert noted() == last


def test_ended_sessions_are_noted_for_as_long_as_they_would_have_lasted(database: Database[dict[str, Any]]) -> None:
    moments: list[datetime] = [utc_now()]
    keys = KeyStore(database, clock=lambda: moments[-1])
    key_id = KeyIssue(keys).issue("ann", [Scope.READ]).key.id

    def noted() -> frozenset[str]:
        found = keys.get(key_id)
        assert found
        return found.ended_sessions

    assert not noted()
    for name, minutes in (("short", 1), ("long", 10), ("short", 1)):
        keys.end_session(key_id, name, moments[0] + timedelta(minutes=minutes))
    assert noted() == {"short", "long"}
    moments.append(moments[0] + timedelta(minutes=2))
    keys.end_session(key_id, "last", moments[0] + timedelta(minutes=9))
    assert noted() == {"long", "last"}


def test_no_more_ended_sessions_are_noted_than_a_key_can_hold(
    database: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.access.key_store.MOST_ENDED", 3)
    keys, now = KeyStore(database), utc_now()
    key_id = KeyIssue(keys).issue("ann", [Scope.READ]).key.id
    for number in range(5):
        keys.end_session(key_id, f"s{number}", now + timedelta(minutes=5 + number))
    found = keys.get(key_id)
    assert found
    assert found.ended_sessions == {"s2", "s3", "s4"}


def test_whoever_is_killed_may_do_it_again(uri: str, tmp_path: Path) -> None:
    points = ("keys.insert", "keys.note_use", "keys.end_session", "keys.revoke")
    killed_everywhere(tmp_path, points, STORY, uri, beside=__file__)
