from __future__ import annotations

import json
from datetime import timedelta

import pytest
from conftest import Platform
from jobs import make_job
from node_double import NodeDouble

from gateway.domain.job import Job, JobStatus
from gateway.domain.outcome import Outcome
from gateway.domain.public_address import parse_networks
from gateway.services.webhook_caller import WebhookCaller
from gateway.services.webhooks import MAX_ROUNDS, Webhooks

LOOPBACK = parse_networks(["127.0.0.0/8"])


class Remembering:
    """Stands for the world outside, which fails as often as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.calls: list[tuple[str, bytes]] = []

    def post(self, url: str, body: bytes) -> str | None:
        self.calls.append((url, body))
        return "answered 500" if len(self.calls) <= self.failures else None


def ended(platform: Platform, *urls: str, **fields: str) -> Job:
    job = make_job(webhooks=list(urls), **fields)
    platform.jobs.insert(job)
    platform.completion.end_waiting(job, Outcome(JobStatus.FINISHED, "3 pages"))
    return platform.jobs.get(job.id)


def webhooks(platform: Platform, caller: Remembering | WebhookCaller) -> Webhooks:
    return Webhooks(jobs=platform.jobs, caller=caller, clock=platform.clock)


def test_every_webhook_is_told_once_how_the_job_ended(platform: Platform) -> None:
    job, world = ended(platform, "http://a.example/", "http://b.example/"), Remembering()
    assert ("call_webhooks", job.id) in platform.woken
    for _ in range(2):
        webhooks(platform, world).call(job.id)
    assert [url for url, _ in world.calls] == ["http://a.example/", "http://b.example/"]
    told = json.loads(world.calls[0][1])
    assert (told["event"], told["job_id"], told["status"]) == ("job.ended", job.id, "finished")


def test_a_webhook_is_told_which_schedule_the_job_was_a_run_of(platform: Platform) -> None:
    world = Remembering()
    for fields in ({}, {"schedule_id": "0" * 32}):
        webhooks(platform, world).call(ended(platform, "http://a.example/", **fields).id)
    plain, of_schedule = (json.loads(body) for _, body in world.calls)
    assert (plain.keys() ^ of_schedule.keys(), of_schedule["schedule_id"]) == ({"schedule_id"}, "0" * 32)


def test_a_webhook_that_fails_is_called_again_later_and_given_up_in_the_end(platform: Platform) -> None:
    job, world = ended(platform, "http://a.example/"), Remembering(failures=99)
    for _ in range(MAX_ROUNDS + 3):
        webhooks(platform, world).call(job.id)
        webhooks(platform, world).call(job.id)
        platform.ahead += timedelta(minutes=10)
    assert len(world.calls) == MAX_ROUNDS
    assert platform.jobs.get(job.id).webhooks_due is None


def test_two_callers_do_not_call_at_the_same_time(platform: Platform) -> None:
    job, world = ended(platform, "http://a.example/"), Remembering()
    # the first has begun, and is slow
    assert platform.jobs.claim_webhooks(job.id, platform.clock() + timedelta(minutes=1)) is not None
    webhooks(platform, world).call(job.id)
    assert world.calls == []
    platform.ahead += timedelta(minutes=2)
    webhooks(platform, world).call(job.id)
    assert len(world.calls) == 1


def test_the_sweeper_remembers_a_webhook_that_nobody_called(platform: Platform) -> None:
    job = ended(platform, "http://a.example/")
    platform.woken.clear()
    platform.ahead += timedelta(seconds=10)
    platform.sweeper.sweep()
    assert ("call_webhooks", job.id) in platform.woken


def test_a_webhook_added_to_an_ended_job_is_called_too(platform: Platform) -> None:
    job, world = ended(platform), Remembering()
    platform.jobs.add_webhook(job.id, "http://late.example/")
    webhooks(platform, world).call(job.id)
    assert [url for url, _ in world.calls] == ["http://late.example/"]


def test_the_caller_posts_and_the_status_decides(double: NodeDouble) -> None:
    caller = WebhookCaller(LOOPBACK)
    assert caller.post(f"{double.url}/hook", b"{}") is None
    double.mode = "broken"
    assert caller.post(f"{double.url}/hook", b"{}") == "answered 500"
    assert caller.post("http://127.0.0.1:9/", b"{}") is not None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_the_caller_connects_to_no_address_inside(host: str) -> None:
    assert "not a public address" in (WebhookCaller().post(f"http://{host}:9/", b"{}") or "")
