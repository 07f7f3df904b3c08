"""The headers and the proxy of a crawl's requests are checked and stored, and secrets in them are never shown."""

from __future__ import annotations

import logging
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from gateway.jobs.store import JobStore

from .conftest import Crawl

SECRETS = {
    "headers": {"Authorization": "Bearer t0ken"},
    "cookies": {"session": "c00kie"},
    "proxy": "http://crawl:p4ssword@proxy.example.com:3128",
}
WORDS = ("t0ken", "c00kie", "p4ssword")


def test_secrets_are_kept_for_the_node_and_shown_to_nobody(
    gateway: httpx2.Client, jobs: JobStore, crawl: Crawl, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), capture_logs() as events:
        taken = gateway.post("/crawl", json={**crawl, "fetch": SECRETS}).json()
        shown = gateway.get(f"/jobs/{taken['job_id']}")
        listed = gateway.get("/jobs", params={"user_id": crawl["user_id"]})
    assert shown.json()["spec"]["fetch"]["headers"] == {"Authorization": "***"}
    assert shown.json()["spec"]["fetch"]["proxy"] == "http://***@proxy.example.com:3128"
    # the driver's own commands are never logged, at whatever level (`gateway/logging.py`)
    logged = [record.getMessage() for record in caplog.records if not record.name.startswith("pymongo")]
    assert events
    told = [shown.text, listed.text, *logged, *map(str, events)]
    assert not [word for word in WORDS for text in told if word in text]
    kept = jobs.get(taken["job_id"]).spec.fetch
    assert kept is not None
    assert kept.model_dump(include=set(SECRETS)) == SECRETS


def test_other_secrets_are_another_crawl(gateway: httpx2.Client, crawl: Crawl) -> None:
    ids = [
        gateway.post("/crawl", json={**crawl, "fetch": {"cookies": {"session": session}}}).json()["job_id"]
        for session in ("a", "b", "a")
    ]
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.parametrize(
    ("fetch", "status", "field"),
    [
        ({"proxy": "http://crawl:p4ssword@127.0.0.1:3128"}, 403, "fetch.proxy"),
        ({"proxy": "http://crawl:p4ssword@[::ffff:10.0.0.1]:3128"}, 403, "fetch.proxy"),
        ({"proxy": "socks5://crawl:p4ssword@proxy.example.com"}, 422, "fetch.proxy"),
        ({"headers": {"Cookie": "c00kie"}}, 422, "fetch.headers"),
        ({"headers": {"Authorization": "t0ken\r\nHost: x"}}, 422, "fetch.headers"),
        ({"headers": {"Authorization": "***"}}, 422, "fetch.headers"),
        ({"cookies": {"session": "c00kie; x=y"}}, 422, "fetch.cookies"),
        ({"min_pause_seconds": 2, "max_pause_seconds": 1}, 422, "fetch"),
        ({"rate_limit": "fast"}, 422, "fetch.rate_limit"),
        ({"retry_codes": [200]}, 422, "fetch.retry_codes"),
        ({"concurrency": 65}, 422, "fetch.concurrency"),
        ({"DOWNLOAD_DELAY": 0}, 422, "fetch.DOWNLOAD_DELAY"),
    ],
)
def test_what_cannot_be_done_is_refused_without_quoting_it(
    gateway: httpx2.Client, crawl: Crawl, fetch: dict[str, Any], status: int, field: str
) -> None:
    answer = gateway.post("/crawl", json={**crawl, "fetch": fetch})
    assert (answer.status_code, answer.json()["error"]["detail"]["field"]) == (status, field)
    assert not [word for word in WORDS if word in answer.text]
