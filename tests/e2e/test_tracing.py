"""A crawl is one trace, from the request that asked for it to its webhooks, and the collector is in nobody's way."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from otlp import Collector, Seen, collecting
from receivers import Receiver, answer
from sites.server import Site
from stack import Stack, running_stack, wait_until

pytestmark = [pytest.mark.stack]

#: What becomes of a crawl after its request, by whom it may be done.
LATER = {
    "dispatch": {"discoverybot-worker"},
    "attempt": {"discoverybot-worker", "discoverybot-beat"},
    "settle": {"discoverybot-worker", "discoverybot-beat"},
    "webhook": {"discoverybot-worker"},
}
PATH = {"POST /crawl", "submit", *LATER}
#: Seconds; a request that waited for the collector would take as long as an export may.
EXPORT = 3.0


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Stack]:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    with running_stack(tmp_path_factory.mktemp("traced") / "home", **variables) as stack:
        yield stack


def post(stack: Stack, site: Site, headers: dict[str, str], **fields: Any) -> str:
    body = {"user_id": "ada", "spider": "seo", "start_urls": [f"{site.url}/tree/2"], "ignore_cache": True, **fields}
    answered = stack.http.post(f"{stack.url}/crawl", json=body, headers=headers).raise_for_status()
    return str(answered.json()["job_id"])


def trace_of(collector: Collector, job_id: str, names: set[str]) -> dict[str, Seen]:
    """The spans of the job's trace, once all of these are there."""

    def found() -> dict[str, Seen] | None:
        of_job = [span for span in list(collector.spans) if span.attributes.get("discoverybot.job_id") == job_id]
        spans = collector.of(of_job[0].trace) if of_job else {}
        return spans if spans.keys() >= names else None

    return wait_until(found, what=f"the spans {names}")


def test_a_crawl_is_one_trace_that_goes_on_from_the_callers(stack: Stack, site: Site, collector: Collector) -> None:
    trace, caller = secrets.token_hex(16), secrets.token_hex(8)
    with Receiver(answer(), address="127.0.0.1") as receiver:
        headers = {"traceparent": f"00-{trace}-{caller}-01"}
        job_id = post(stack, site, headers, webhook_url=receiver.url("/hook/of-a-secret"))
        spans = trace_of(collector, job_id, PATH)
    assert spans.keys() == PATH
    assert {span.trace for span in spans.values()} == {trace}
    request, submit = spans["POST /crawl"], spans["submit"]
    assert (request.parent, submit.parent) == (caller, request.id)
    assert {request.service, submit.service} == {"discoverybot-gateway"}
    for name, services in LATER.items():
        assert (spans[name].parent, spans[name].service in services) == (submit.id, True), spans[name]
    called = {"server.address": "127.0.0.1", "discoverybot.event": "job.ended", "discoverybot.job_id": job_id}
    assert spans["webhook"].attributes == called
    assert "of-a-secret" not in repr(collector.spans)
    assert collector.paths == {"/v1/traces"}
    check_attempt(stack.job(job_id), spans)


def check_attempt(job: dict[str, Any], spans: dict[str, Seen]) -> None:
    """It lasts as long as the spider's process did."""
    (told,), attempt = job["attempts"], spans["attempt"]
    for at, nanoseconds in ((told["started_at"], attempt.start), (told["ended_at"], attempt.end)):
        assert abs(datetime.fromisoformat(at).timestamp() - nanoseconds / 1e9) < 0.01
    assert spans["submit"].start < spans["dispatch"].start < attempt.end < spans["settle"].end
    expected = {"discoverybot.status": "finished", "discoverybot.attempt": 1, "discoverybot.exit_code": 0}
    assert expected.items() <= attempt.attributes.items()


@pytest.mark.parametrize("traceparent", ["00-0-0-01", f"00-{'0' * 32}-{'1' * 16}-01", "é"])
def test_a_malformed_traceparent_begins_a_trace(
    stack: Stack, site: Site, collector: Collector, traceparent: str
) -> None:
    spans = trace_of(collector, post(stack, site, {"traceparent": traceparent.encode()}), {"POST /crawl", "settle"})
    assert spans["POST /crawl"].parent == ""


def test_what_the_caller_does_not_sample_is_not_sent(stack: Stack, site: Site, collector: Collector) -> None:
    trace = secrets.token_hex(16)
    stack.wait_final(post(stack, site, {"traceparent": f"00-{trace}-{secrets.token_hex(8)}-00"}))
    after = post(stack, site, {})
    stack.wait_final(after)
    trace_of(collector, after, {"settle"})
    assert not collector.of(trace)


def test_a_crawl_for_later_has_a_trace_of_its_own_under_its_id(
    stack: Stack, site: Site, collector: Collector
) -> None:
    at = (datetime.now(UTC) + timedelta(seconds=0.5)).isoformat()
    job_id = post(stack, site, {}, schedule_at=at, ignore_cache=False)
    spans = trace_of(collector, job_id, {"dispatch", "attempt", "settle"})
    assert {span.trace for span in spans.values()} == {job_id}
    assert {span.parent for span in spans.values()} == {""}


def test_a_silent_collector_holds_nobody_up(stack: Stack, site: Site, collector: Collector) -> None:
    collector.answers.clear()
    try:
        began = time.monotonic()
        while time.monotonic() - began < EXPORT + 1:
            asked = time.monotonic()
            job_id = post(stack, site, {}, depth=0)
            assert time.monotonic() - asked < EXPORT / 2
            assert stack.wait_final(job_id)["status"] == "finished"
    finally:
        collector.answers.set()


def test_what_only_reads_is_traced_in_a_callers_trace_alone(stack: Stack, site: Site, collector: Collector) -> None:
    trace, caller = secrets.token_hex(16), secrets.token_hex(8)
    job_id = post(stack, site, {})
    stack.wait_final(job_id)
    headers = {"traceparent": f"00-{trace}-{caller}-01"}
    stack.http.get(f"{stack.url}/jobs/{job_id}", headers=headers).raise_for_status()
    (asked,) = wait_until(lambda: list(collector.of(trace).values()), what="the span of the question")
    assert (asked.name, asked.parent) == ("GET /jobs/{job_id}", caller)
    assert [span for span in collector.spans if span.name.startswith("GET")] == [asked]
