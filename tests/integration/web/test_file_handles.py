"""A gateway process with few file handles."""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
import warm
from stack import wait_until
from stores import free_port

from gateway.access.key_store import KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.settings import Settings
from gateway.stores.mongo import connect

HANDLES = 1024
#: So many streams once took all handles: the gateway accepted no further connection.
STREAMS = 936
ROOT = Path(__file__).parents[3]


@pytest.fixture
def many_handles() -> Iterator[None]:
    """More file handles for this process, which has the other ends of all connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * HANDLES)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def own(settings: Settings) -> Settings:
    return settings.model_copy(update={"mongo_uri": settings.mongo_uri.replace("/discoverybot", "/handles")})


@pytest.fixture
def served(own: Settings, tmp_path: Path) -> Iterator[str]:
    port = free_port()
    given = {
        "MONGO_URI": own.mongo_uri, "REDIS_URL": own.redis_url, "DISCOVERYBOT_HOME": str(tmp_path / "home"),
        "GATEWAY_PORT": str(port), "GATEWAY_RATE_LIMIT": "none",
    }  # fmt: skip
    process = warm.start("gateway.web.__main__", env={**os.environ, **given}, cwd=ROOT, stdout=tmp_path / "log")
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (HANDLES, HANDLES))
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: is_up(url))
        yield url
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)


def is_up(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health/live", trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False


def test_streams_of_one_user_leave_connections_to_others(served: str, own: Settings, many_handles: None) -> None:
    database = connect(own.mongo_uri)
    issue = KeyIssue(KeyStore(database))
    anne, bert = issue.issue("anne", [Scope.READ]), issue.issue("bert", [Scope.READ])
    head = f"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {anne.token}\r\n\r\n"
    with ExitStack() as streams:
        connections = []
        for _ in range(STREAMS):
            connection = streams.enter_context(socket.create_connection(("127.0.0.1", httpx2.URL(served).port)))
            connection.settimeout(60)
            connection.sendall(head.encode())
            connections.append(connection)
        answers = Counter(connection.recv(12)[-3:] for connection in connections)
        assert answers == {b"200": 50, b"429": STREAMS - 50}
        for _ in range(20):
            answer = httpx2.get(
                f"{served}/jobs", headers={"Authorization": f"Bearer {bert.token}"}, timeout=60, trust_env=False
            )
            assert answer.status_code == 200
    database.client.close()
