"""A key with a budget of pages on a whole platform, whose workers are killed meanwhile: the site is the witness."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sites.server import Site
from stack import Stack, running_stack, wait_until

pytestmark = [pytest.mark.stack]

BUDGET = 12


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Stack]:
    """A platform with keys, which nobody else can use; `http` has the spender's."""
    with running_stack(tmp_path / "home") as stack:
        stack.http.base_url = httpx2.URL(stack.url)
        made = stack.http.post("/keys", json={"user_id": "root", "scopes": ["admin"]}).raise_for_status().json()
        root = {"Authorization": f"Bearer {made['key']}"}
        # the gateway remembers for a moment that there was no key
        wait_until(lambda: stack.http.get("/session", headers=root).json()["key_id"], what="a gateway with keys")
        wish = {"user_id": "ada", "scopes": ["crawl"], "budget": {"pages": BUDGET}}
        spender = stack.http.post("/keys", json=wish, headers=root).raise_for_status().json()
        stack.http.headers["Authorization"] = f"Bearer {spender['key']}"
        yield stack


def test_a_site_sees_as_many_pages_as_the_budget_has(locked: Stack, site: Site) -> None:
    site.delay = 0.05

    def ask(number: int, **fields: Any) -> httpx2.Response:
        crawl = {"spider": "seo", "start_urls": [f"{site.url}/endless/{number}000"], **fields}
        return locked.http.post("/crawl", json=crawl)

    def left() -> dict[str, Any]:
        budget: dict[str, Any] = locked.http.get("/session").json()["budget"]
        return budget

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: ask(number, max_pages=5), range(1, 9)))
    jobs = [answer.json()["job_id"] for answer in answers if answer.is_success]
    refused = [answer.json()["error"]["code"] for answer in answers if not answer.is_success]
    assert (len(jobs), refused) == (2, ["budget_spent"] * 6)
    worker = locked.ready["pids"]["worker"]
    locked.kill("worker")
    locked.wait_for_another("worker", worker)
    for job_id in jobs:
        locked.wait_final(job_id)
    wait_until(lambda: left()["reserved"]["pages"] == 0, what="the end of both")
    assert (len(site.paths()), left()["left"]["pages"]) == (10, 2)
    # of one that names no limit the rest is the limit
    last = ask(9).raise_for_status().json()["job_id"]
    assert locked.wait_final(last)["status"] == "finished"
    wait_until(lambda: left()["reserved"]["pages"] == 0, what="its end")
    assert (len(site.paths()), left()["left"]["pages"]) == (BUDGET, 0)
    assert locked.http.post(f"/jobs/{last}/retry").status_code == 429
    assert ask(10, max_pages=1).status_code == 429
