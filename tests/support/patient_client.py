"""A user who does not give up: it repeats requests that were not answered, or refused for now, in a safe way."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import httpx2
from stack import Stack, wait_until


class PatientClient:
    def __init__(self, stack: Stack, *, patience: float = 120.0) -> None:
        """`patience` in seconds, for one answer."""
        self.stack = stack
        self._patience = patience
        self._lock = threading.Lock()
        #: How often it got each status of 500 or above; 0 stands for no answer.
        self.refused: Counter[int] = Counter()

    def call(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Repeat the request until it is answered. Fails if a refusal does not say when to ask again."""

        def answered() -> httpx2.Response | None:
            try:
                answer = self.stack.http.request(method, f"{self.stack.url}{path}", **options)
            except httpx2.TransportError:
                self._note(0)
                raise
            if answer.status_code < httpx2.codes.INTERNAL_SERVER_ERROR:
                return answer
            self._note(answer.status_code)
            assert answer.status_code == httpx2.codes.SERVICE_UNAVAILABLE, answer.text
            assert int(answer.headers["Retry-After"]) > 0
            return None

        return wait_until(answered, timeout=self._patience, what=f"an answer to {method} {path}")

    def crawl(self, url: str, *, key: str, **fields: Any) -> str:
        """The job of one crawl, which is requested until it is accepted."""
        body = {"user_id": "tester", "spider": "seo", "start_urls": [url], **fields}
        answer = self.call("POST", "/crawl", json=body, headers={"Idempotency-Key": key})
        assert answer.status_code == httpx2.codes.OK, answer.text
        return str(answer.json()["job_id"])

    def _note(self, status: int) -> None:
        with self._lock:
            self.refused[status] += 1
