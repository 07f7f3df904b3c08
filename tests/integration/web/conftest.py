"""The gateway as a server on loopback, over a real Redis and the embedded MongoDB server."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from pymongo.database import Database
from stores import embedded_mongo, valkey_server

from gateway.application import create_app
from gateway.contract.records import SpiderInfo
from gateway.items.items import ItemStore
from gateway.jobs.job import Job
from gateway.jobs.store import JobStore
from gateway.nodes.store import NodeStore
from gateway.projects.eggs import SpiderStore
from gateway.settings import Settings
from gateway.status import health
from gateway.stores.mongo import connect
from gateway.web.http_protocol import BoundedProtocol
from gateway.web.websocket import ClosingWebSocket

SCHEMA = {"type": "object", "properties": {"robots": {"type": "boolean"}}, "additionalProperties": False}
Crawl = dict[str, Any]


@contextmanager
def _serve(settings: Settings) -> Iterator[httpx2.Client]:
    # idle connections stay open for as long as those of a gateway do
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(settings),
            port=0,
            log_config=None,
            ws=ClosingWebSocket,
            http=BoundedProtocol,
            timeout_keep_alive=75,
        )
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        # without limits of connections, as in stack.py
        unlimited, address = httpx2.Limits(keepalive_expiry=None), f"http://127.0.0.1:{port}"
        with httpx2.Client(base_url=address, timeout=60, limits=unlimited, trust_env=False) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(60)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of the health waits for all checks. Otherwise, on a busy machine, it would have older answers."""
    monkeypatch.setattr(health, "_SOON", health._PATIENCE)


@pytest.fixture(scope="session")
def serve() -> Callable[[Settings], AbstractContextManager[httpx2.Client]]:
    """Starts a gateway with the given settings, and yields a client of it."""
    return _serve


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("stores")
    with valkey_server(folder / "valkey") as redis_url, embedded_mongo(folder / "mongo") as mongo_uri:
        yield Settings(redis_url=str(redis_url), mongo_uri=str(mongo_uri), discoverybot_home=folder / "home",
                       export_to=(str(folder / "exports"),))  # fmt: skip


@pytest.fixture(scope="session")
def database(settings: Settings) -> Iterator[Database[dict[str, Any]]]:
    database = connect(settings.mongo_uri)
    SpiderStore(database).publish("n1", [SpiderInfo(project="default", name="seo", params_schema=SCHEMA)])
    yield database
    database.client.close()


@pytest.fixture(scope="session")
def gateway(settings: Settings, database: object) -> Iterator[httpx2.Client]:
    with _serve(settings) as client:
        yield client


@pytest.fixture
def jobs(database: Database[dict[str, Any]]) -> JobStore:
    return JobStore(database)


@pytest.fixture
def items(database: Database[dict[str, Any]]) -> ItemStore:
    return ItemStore(database)


@pytest.fixture
def nodes(database: Database[dict[str, Any]]) -> NodeStore:
    return NodeStore(database)


@pytest.fixture
def user() -> str:
    """The id of a user that no other test has."""
    return f"user-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def crawl(user: str) -> Crawl:
    """A valid request."""
    return {"user_id": user, "spider": "seo", "start_urls": ["https://example.com/"]}


@pytest.fixture
def keep(jobs: JobStore) -> Callable[[Job], Job]:
    """Stores a job as it is."""

    def insert(job: Job) -> Job:
        jobs.insert(job)
        return job

    return insert


@pytest.fixture
def make(gateway: httpx2.Client, crawl: Crawl) -> Callable[..., Crawl]:
    """Makes a schedule: every morning in Paris, unless the fields say otherwise. Returns the answer."""

    def make_schedule(**fields: Any) -> Crawl:
        body = {**crawl, "interval": "0 9 * * *", "timezone": "Europe/Paris", **fields}
        answer = gateway.post("/schedules", json=body)
        assert answer.status_code == 201, answer.text
        assert answer.headers["location"] == f"/schedules/{answer.json()['schedule_id']}"
        view: Crawl = answer.json()
        return view

    return make_schedule
