"""One id leads through the log of every process that has had to do with a crawl."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import httpx2
import orjson
import pytest
from sites.server import Site
from stack import Stack, wait_until

pytestmark = [pytest.mark.stack]

#: What each process says at least, from the POST to the job's end.
PATH = {
    "gateway": {"crawl_accepted", "request"},
    "scrapyd": {"is started"},
    "tailer": {"attempt_started", "attempt_ended"},
    "worker": {"dispatched"},
}


def told(stack: Stack, correlation_id: str) -> dict[str, str]:
    """By process, the lines of the stack's log that have the id."""
    lines: dict[str, str] = {}
    for line in stack.output.read_text().splitlines():
        # 09:52:48 worker  | INFO [gateway.dispatch.dispatcher] dispatched job_id=…
        head, _, text = line.partition("| ")
        if correlation_id in text:
            process = head.split()[-1]
            lines[process] = f"{lines.get(process, '')}{text}\n"
    return lines


def is_told(stack: Stack, correlation_id: str, path: dict[str, set[str]]) -> bool:
    lines = told(stack, correlation_id)
    # a beat carries out what has ended, too, if it looks before the worker was woken
    ended = "job_ended" in lines.get("worker", "") + lines.get("beat", "")
    return ended and all(event in lines.get(process, "") for process, events in path.items() for event in events)


def follow(stack: Stack, correlation_id: str, job_id: str, path: dict[str, set[str]]) -> None:
    assert stack.wait_final(job_id)["status"] == "finished"
    assert stack.job(job_id)["correlation_id"] == correlation_id
    wait_until(lambda: is_told(stack, correlation_id, path), what="a line of every process")
    spec = orjson.loads((stack.home / "node" / "outbox" / f"{job_id}-1" / "spec.json").read_bytes())
    assert spec["correlation_id"] == correlation_id
    first = stack.log(job_id).decode().splitlines()
    assert any(correlation_id in line and "correlation id" in line for line in first)


def post(stack: Stack, site: Site, request_id: str, **when: str) -> httpx2.Response:
    body = {"user_id": "ada", "spider": "seo", "start_urls": [f"{site.url}/tree/2"], **when}
    answer = stack.http.post(f"{stack.url}/crawl", json=body, headers={"X-Request-ID": request_id})
    assert answer.headers["X-Request-ID"] == request_id
    return answer.raise_for_status()


def test_the_id_of_a_request_is_found_from_the_gateway_to_the_spiders_own_log(stack: Stack, site: Site) -> None:
    correlation_id = f"follow-me-{uuid.uuid4().hex}"
    job_id = post(stack, site, correlation_id).json()["job_id"]
    follow(stack, correlation_id, job_id, PATH)


def test_a_schedules_run_has_an_id_of_its_own_from_the_beat_on(stack: Stack, site: Site) -> None:
    start = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    schedule = post(stack, site, uuid.uuid4().hex, interval="every 1h", schedule_at=start).json()["job_id"]
    runs = f"{stack.url}/jobs?schedule_id={schedule}"
    try:
        (run,) = wait_until(lambda: stack.http.get(runs).json()["jobs"], what="the schedule's run")
        job_id = run["job_id"]
        follow(stack, job_id, job_id, {**PATH, "gateway": set(), "beat": {"slot_fired"}})
    finally:
        stack.http.delete(f"{stack.url}/schedules/{schedule}").raise_for_status()


def test_no_password_of_the_stack_is_in_any_log_of_its_processes(stack: Stack) -> None:
    password = stack.ready["scrapyd_password"]
    assert password
    for line in stack.output.read_text().splitlines():
        # the summary, for whoever has started it
        head, _, text = line.partition("| ")
        assert password not in text or head.split()[-1] == "up"
