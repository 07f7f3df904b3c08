"""Calls that read much hold up no others, and one user has two of them at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from integration.web.board import problem
from integration.web.signed_in import anne, job, keys, own, own_settings, url
from stack import wait_until

from gateway.access.key_store import Issued, KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.logs.store import LogChunk, LogStore

__all__ = ["anne", "job", "keys", "own", "own_settings", "url"]

TOO_MANY = (429, "too_many_requests")


class Gate:
    """Searches of logs wait here until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.waiting = 0

    def open(self) -> None:
        self.opened.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate, chunks = Gate(), LogStore.chunks

    def held(*args: Any) -> Iterator[LogChunk]:
        gate.waiting += 1
        gate.opened.wait(60)
        return chunks(*args)

    monkeypatch.setattr(LogStore, "chunks", held)
    monkeypatch.setattr("gateway.web.threads._PATIENCE", 0.0)
    yield gate
    gate.open()


def test_held_searches_hold_up_nothing_else(url: str, anne: Issued, keys: KeyStore, job: str, gate: Gate) -> None:
    admin = KeyIssue(keys).issue("root", [Scope.ADMIN])
    with httpx.Client(base_url=url, timeout=90, trust_env=False) as http, ThreadPoolExecutor(4) as threads:

        def get(issued: Issued, path: str) -> httpx.Response:
            return http.get(path, headers={"Authorization": f"Bearer {issued.token}"})

        paths = [f"/jobs/{job}/logs/search?q=x", f"/jobs/{job}/logs/lines?q=x"]
        begun = [threads.submit(get, issued, path) for issued in (anne, admin) for path in paths]
        try:
            wait_until(lambda: gate.waiting == len(begun))
            for path in (
                *paths, f"/jobs/{job}/fields", f"/jobs/{job}/requests?sort=-ms", f"/jobs/{job}/requests?q=x",
                f"/jobs/{job}/requests?q=x&format=csv", f"/jobs/{job}/items?q=x", f"/jobs/{job}/items?q=x&limit=5",
                "/jobs?q=x", "/jobs/count?q=x", "/jobs/points?q=x",
            ):  # fmt: skip
                refused = get(anne, path)
                assert problem(refused) == TOO_MANY, path
                assert int(refused.headers["retry-after"]) > 0
            for path in ("/jobs", f"/jobs/{job}", f"/jobs/{job}/logs/index", f"/jobs/{job}/requests", "/jobs/count"):
                assert get(anne, path).status_code == 200, path
        finally:
            gate.open()
        assert [answer.result().status_code for answer in begun] == [200] * len(begun)
        # each has given its place back
        assert [get(anne, path).status_code for path in paths * 2] == [200] * 4
