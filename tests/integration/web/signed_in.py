"""A gateway that takes keys, and browsers that are signed in to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx2
import pytest
from integration.web.board import Serve
from jobs import make_job
from pymongo.database import Database

from gateway.access.key_store import Issued, KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.jobs.job import Attempt, JobStatus
from gateway.jobs.store import JobStore
from gateway.settings import Settings
from gateway.stores.mongo import connect

PATIENCE = 90
LISTED = "http://localhost:3000"


@pytest.fixture(scope="module")
def own_settings(settings: Settings) -> Settings:
    uri = settings.mongo_uri.replace("/discoverybot", "/sessions")
    return settings.model_copy(update={"mongo_uri": uri, "gateway_cors_origins": (LISTED,)})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the gateway read keys and check streams more often, so that tests need not wait."""
    monkeypatch.setattr("gateway.web.authentication.FRESH", 0.2)
    monkeypatch.setattr("gateway.web.authentication._LOOK", 0.3)


@pytest.fixture(scope="module")
def own(own_settings: Settings) -> Iterator[Database[dict[str, Any]]]:
    database = connect(own_settings.mongo_uri)
    yield database
    database.client.close()


@pytest.fixture(scope="module")
def keys(own: Database[dict[str, Any]]) -> KeyStore:
    return KeyStore(own)


@pytest.fixture(scope="module")
def url(serve: Serve, own_settings: Settings, keys: KeyStore) -> Iterator[str]:
    KeyIssue(keys).issue_first()
    with serve(own_settings) as client:
        yield str(client.base_url)


class Browser(NamedTuple):
    """A client that has only the session's cookie, and the session as the gateway described it."""

    http: httpx2.Client
    view: dict[str, Any]

    @property
    def csrf(self) -> dict[str, str]:
        return {"X-CSRF-Token": self.view["csrf_token"]}


SignIn = Callable[[Issued], Browser]


@pytest.fixture
def anne(keys: KeyStore) -> Issued:
    return KeyIssue(keys).issue("anne", [Scope.CRAWL])


@pytest.fixture
def sign_in(url: str) -> Iterator[SignIn]:
    opened: list[httpx2.Client] = []

    def with_key(issued: Issued) -> Browser:
        http = httpx2.Client(base_url=url, timeout=PATIENCE, trust_env=False)
        opened.append(http)
        answer = http.post("/session", json={"key": str(issued.token)})
        assert answer.status_code == 200, answer.text
        return Browser(http, answer.json())

    yield with_key
    for http in opened:
        http.close()


@pytest.fixture
def job(own: Database[dict[str, Any]]) -> str:
    """A job of Anne that runs without end."""
    attempt = Attempt(attempt=1, node="n1", dispatched_at=utc_now())
    running = {"status": JobStatus.RUNNING, "attempt": 1, "attempts": {"1": attempt}}
    job = make_job(user_id="anne", live_key=None, **running)
    JobStore(own).insert(job)
    return job.id
