"""Authentication: without keys, with the first key, wrong and revoked ones; and tokens of streams."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from integration.web.board import Serve
from jobs import make_job
from pymongo.database import Database

from gateway.access.key_store import Issued, KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.jobs.job import JobStatus
from gateway.jobs.store import JobStore
from gateway.settings import Settings
from gateway.stores.mongo import connect


@pytest.fixture(scope="module")
def own_settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"mongo_uri": settings.mongo_uri.replace("/discoverybot", "/with-keys")})


@pytest.fixture(scope="module")
def own(own_settings: Settings) -> Iterator[Database[dict[str, Any]]]:
    database = connect(own_settings.mongo_uri)
    yield database
    database.client.close()


@pytest.fixture(scope="module")
def keys(own: Database[dict[str, Any]]) -> KeyStore:
    return KeyStore(own)


@pytest.fixture(scope="module")
def door(serve: Serve, own_settings: Settings, own: object) -> Iterator[httpx2.Client]:
    with serve(own_settings) as client:
        yield client


@pytest.fixture(scope="module")
def anne(door: httpx2.Client, keys: KeyStore) -> Issued:
    """The first key, made while the gateway still serves everybody."""
    assert door.get("/jobs").status_code == 200
    issued = KeyIssue(keys).issue("anne", [Scope.CRAWL])
    _wait(lambda: door.get("/jobs").status_code == 401)
    return issued


def _wait(reached: Any) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ask(door: httpx2.Client, key: object, path: str = "/jobs", **more: Any) -> httpx2.Response:
    return door.get(path, headers={"Authorization": f"Bearer {key}"}, **more)


def test_what_is_the_same_for_everybody_stays_open(door: httpx2.Client, anne: Issued) -> None:
    for path in ("/health/live", "/docs", "/redoc", "/openapi.json", "/docs/assets/favicon.png"):
        assert door.get(path).status_code == 200
    # `/help` leads to the documentation, which may not be built
    assert door.get("/help").status_code == 307
    assert door.get("/help/").status_code in {200, 404}
    assert door.get("/health").json()["status"] == "starting"
    assert ask(door, anne.token).status_code == 200
    assert ask(door, anne.token, "/nowhere").status_code == 404
    assert door.get("/nowhere").status_code == 401


@pytest.mark.parametrize(
    "wrong",
    [
        "Basic YW5uZTphbm5l",
        "Bearer",
        "Bearer db",
        "Bearer db_",
        "Bearer db__",
        "Bearer db_first_",
        "Bearer db_{id}_" + "0" * 48,
        "Bearer db_{id}_{secret}0",
        "Bearer st_{id}_{secret}",
        "Bearer db_nobody_{secret}",
        "Bearer {sha256}",
        "Bearer db_{id}_{sha256}",
    ],
)
def test_what_is_no_key_opens_nothing(door: httpx2.Client, anne: Issued, wrong: str) -> None:
    text = wrong.format(id=anne.key.id, secret=anne.token.secret, sha256=anne.key.sha256)
    answer = door.get("/jobs", headers={"Authorization": text})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "key_invalid")
    assert answer.headers["www-authenticate"] == 'Bearer realm="discoverybot", error="invalid_token"'
    assert anne.token.secret not in answer.text


def test_a_key_that_is_revoked_or_expires_is_worthless_within_seconds(
    door: httpx2.Client, keys: KeyStore, anne: Issued
) -> None:
    issue = KeyIssue(keys)
    revoked = issue.issue("bert", [Scope.READ])
    expiring = issue.issue("bert", [Scope.READ], expires_at=utc_now() + timedelta(seconds=1))
    assert ask(door, revoked.token).status_code == 200
    assert ask(door, anne.token).status_code == 200
    keys.revoke(revoked.key.id)
    began = time.monotonic()
    _wait(lambda: ask(door, revoked.token).status_code == 401)
    assert time.monotonic() - began < 20
    _wait(lambda: ask(door, expiring.token).status_code == 401)
    assert door.get("/jobs").status_code == 401


def test_a_key_for_metrics_opens_them_and_nothing_else(door: httpx2.Client, keys: KeyStore, anne: Issued) -> None:
    for_metrics = KeyIssue(keys).issue("prometheus", [Scope.METRICS])
    assert ask(door, for_metrics.token, "/metrics").status_code == 200
    for path in ("/jobs", "/nodes", "/spiders", "/session"):
        assert ask(door, for_metrics.token, path).json()["error"]["code"] == "scope_missing"
    refused = ask(door, anne.token, "/metrics").json()["error"]
    assert (refused["code"], refused["detail"]["scope"]) == ("scope_missing", "metrics")


def test_most_requests_do_not_ask_the_database(
    door: httpx2.Client, own: Database[dict[str, Any]], anne: Issued
) -> None:
    assert ask(door, anne.token, "/nowhere").status_code == 404
    held = own["keys"].find_one({"_id": anne.key.id})
    own["keys"].delete_one({"_id": anne.key.id})
    assert held is not None
    try:
        assert ask(door, anne.token, "/nowhere").status_code == 404
    finally:
        own["keys"].insert_one(held)
    _wait(lambda: ask(door, anne.token, "/nowhere").status_code == 404)


def test_a_stream_token_opens_one_log_and_nothing_else(
    door: httpx2.Client,
    own: Database[dict[str, Any]],
    anne: Issued,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    # earlier tests may have changed the logger
    access = logging.getLogger("uvicorn.access")
    caplog.set_level(logging.INFO, access.name)
    for name, value in (("propagate", True), ("disabled", False)):
        monkeypatch.setattr(access, name, value)
    ended = {"status": JobStatus.CANCELLED, "settled": True}
    first = make_job(user_id="anne", **ended, live_key=None)
    second = make_job(user_id="anne", **ended, live_key=None)
    for job in (first, second):
        JobStore(own).insert(job)
    headers = {"Authorization": f"Bearer {anne.token}"}
    answer = door.post(f"/jobs/{first.id}/stream-token", headers=headers)
    assert answer.status_code == 200, answer.text
    token, url = answer.json()["token"], answer.json()["url"]
    # a new connection, because each one remembers whether there was a log when it was opened
    with httpx2.Client(base_url=door.base_url, trust_env=False) as fresh:
        stream = fresh.get(url + "&level=WARNING")
    assert stream.status_code == 200
    assert "event: end" in stream.text
    assert door.get(url.replace(first.id, second.id)).status_code == 401
    servers = [record.getMessage() for record in caplog.records if record.name.startswith(("uvicorn", "gateway"))]
    assert any(f"/jobs/{first.id}/logs?level=WARNING" in line for line in servers)
    assert not [line for line in servers if token in line]
    for path in (f"/jobs/{first.id}", f"/jobs/{first.id}/items", "/jobs", "/events"):
        assert door.get(path, params={"token": token}).status_code == 401
        assert ask(door, token, path).status_code == 401
    assert door.get(f"/jobs/{first.id}/logs", params={"token": f"{token[:-1]}x"}).status_code == 401
    assert ask(door, token, f"/jobs/{first.id}/logs").status_code == 401
    key_id, expires, signature = token.split("_")[1:]
    later = f"st_{key_id}_{int(expires) + 60}_{signature}"
    assert door.get(f"/jobs/{first.id}/logs", params={"token": later}).status_code == 401


def test_without_keys_a_log_takes_no_token(gateway: httpx2.Client, jobs: JobStore, user: str) -> None:
    job = make_job(user_id=user, status=JobStatus.CANCELLED, settled=True, live_key=None)
    jobs.insert(job)
    answer = gateway.post(f"/jobs/{job.id}/stream-token")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    assert gateway.get(f"/jobs/{job.id}/logs?token=whatever").status_code == 200
