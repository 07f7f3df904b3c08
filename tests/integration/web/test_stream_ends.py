"""An open stream ends soon after its key or session has ended."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from integration.web.signed_in import (
    PATIENCE,
    SignIn,
    anne,
    impatient,
    job,
    keys,
    own,
    own_settings,
    sign_in,
    url,
)
from pymongo.database import Database

from gateway.access.key_store import Issued, KeyStore
from gateway.clock import utc_now

__all__ = ["anne", "impatient", "job", "keys", "own", "own_settings", "sign_in", "url"]


class Following:
    """An open stream, which a thread of its own reads."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.text = ""
        self.error: Exception | None = None


@contextmanager
def following(http: httpx2.Client, path: str, **how: Any) -> Iterator[Callable[[], Following]]:
    """Follow a stream. Yields a function that waits until the server has closed it, and returns what was read."""
    heard = Following()

    def read() -> None:
        try:
            own = httpx2.Client(base_url=http.base_url, cookies=http.cookies, timeout=PATIENCE, trust_env=False)
            with own, own.stream("GET", path, **how) as answer:
                answer.raise_for_status()
                for text in answer.iter_text():
                    heard.text += text
                    heard.has_begun.set()
        except Exception as error:  # noqa: BLE001 - told by whoever waits for it
            heard.error = error
            heard.has_begun.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert heard.has_begun.wait(PATIENCE)

    def closed() -> Following:
        thread.join(PATIENCE)
        assert not thread.is_alive()
        # the answer was ended, not cut off
        assert heard.error is None
        return heard

    yield closed
    thread.join(PATIENCE)


def test_an_open_stream_ends_with_the_session_and_others_go_on(
    sign_in: SignIn, anne: Issued, own: Database[dict[str, Any]], job: str
) -> None:
    leaving, staying = sign_in(anne), sign_in(anne)
    with (
        following(staying.http, f"/jobs/{job}/logs") as goes_on,
        following(leaving.http, f"/jobs/{job}/logs") as log,
        following(leaving.http, "/events") as events,
    ):
        assert leaving.http.delete("/session", headers=leaving.csrf).status_code == 204
        for closed in (log, events):
            assert "has ended" in closed().text
        finished = {"status": "finished", "settled": True, "finished_at": utc_now()}
        own["jobs"].update_one({"_id": job}, {"$set": finished})
        heard = goes_on().text
        assert "has ended" not in heard
        assert json.loads(heard.partition("event: end")[2].partition("data: ")[2])["status"] == "finished"


@pytest.mark.parametrize("by", ["header", "token", "cookie"])
def test_an_open_stream_ends_with_the_key(sign_in: SignIn, keys: KeyStore, anne: Issued, job: str, by: str) -> None:
    path, headers = f"/jobs/{job}/logs", {"Authorization": f"Bearer {anne.token}"}
    browser = sign_in(anne)
    if by == "token":
        path = browser.http.post(f"/jobs/{job}/stream-token", headers=headers).json()["url"]
    if by != "cookie":
        browser.http.cookies.clear()
    with following(browser.http, path, headers=headers if by == "header" else {}) as closed:
        keys.revoke(anne.key.id)
        assert "has ended" in closed().text
    assert browser.http.get(f"/jobs/{job}/logs", headers=headers).status_code == 401


def test_an_open_stream_ends_when_the_key_expires(
    sign_in: SignIn, anne: Issued, own: Database[dict[str, Any]], job: str
) -> None:
    with following(sign_in(anne).http, f"/jobs/{job}/logs") as closed:
        own["keys"].update_one({"_id": anne.key.id}, {"$set": {"expires_at": utc_now()}})
        assert "has ended" in closed().text
