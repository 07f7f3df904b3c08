"""`/keys`: keys are made and revoked over HTTP, and a key's secret is shown once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import httpx2
import pytest
from stack import wait_until

from gateway.access.audit import AuditStore
from gateway.access.key_store import KeyStore
from gateway.settings import Settings
from gateway.stores.mongo import connect


@pytest.fixture(scope="module")
def own_settings(settings: Settings) -> Settings:
    """Settings with a database of its own, because from the first key on every call needs one."""
    return settings.model_copy(update={"mongo_uri": settings.mongo_uri.replace("/discoverybot", "/key-routes")})


@pytest.fixture(scope="module")
def door(
    serve: Callable[[Settings], AbstractContextManager[httpx2.Client]], own_settings: Settings
) -> Iterator[httpx2.Client]:
    with serve(own_settings) as client:
        yield client


def problem(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["detail"]["field"]


def test_a_key_is_made_told_once_and_revoked(door: httpx2.Client, own_settings: Settings) -> None:
    assert door.get("/keys").json() == {"keys": []}
    first = {"user_id": "root", "scopes": ["admin"], "note": "the first"}
    assert problem(door.post("/keys", json={**first, "scopes": ["crawl"]})) == (422, "scopes")
    made = door.post("/keys", json=first)
    assert made.status_code == 201, made.text
    root = {"Authorization": f"Bearer {made.json()['key']}"}
    # for a moment, a gateway still takes it that there is no key
    wait_until(lambda: door.get("/session", headers=root).json()["user_id"] == "root", what="a gateway with keys")
    assert door.get("/keys", headers=root).json()["keys"][0]["note"] == "the first"
    for field, value in {
        "expires_at": "2020-01-01T00:00:00Z",
        "scopes": [],
        "user_id": "a b",
        "note": "\x07",
    }.items():
        assert problem(door.post("/keys", json={**first, field: value}, headers=root)) == (422, field)
    anne = door.post("/keys", json={"user_id": "anne", "scopes": ["crawl"]}, headers=root).json()
    secret, key_id = anne["key"].rpartition("_")[2], anne["key_id"]
    hers = {"Authorization": f"Bearer {anne['key']}"}
    assert door.get("/session", headers=hers).json()["user_id"] == "anne"
    # her key may not make or list keys
    assert {door.request(method, "/keys", headers=hers).status_code for method in ("GET", "POST")} == {403}
    assert door.delete(f"/keys/{key_id}", headers=hers).status_code == 403
    assert secret not in door.get("/keys", headers=root).text
    revoked = door.delete(f"/keys/{key_id}", headers=root).json()
    assert (revoked["state"], revoked["revoked_at"] is None) == ("revoked", False)
    assert door.delete("/keys/nobody", headers=root).json()["error"]["code"] == "key_not_found"
    database = connect(own_settings.mongo_uri)
    key = KeyStore(database).get(key_id)
    assert key is not None
    assert key.revoked_at is not None
    # the record has who did it, but not the secret
    entries = str(list(database[AuditStore(database)._audit.name].find()))
    assert secret not in entries
    database.client.close()
