"""What endpoints are told of: which events, of whose crawls, with which signature, and when they are disabled."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from conftest import DEAD_AFTER, Platform
from jobs import make_job
from receivers import Receiver, answer
from scheduled import make_schedule
from stack import wait_until
from standardwebhooks import Webhook

from gateway.contract.crawl import CrawlSpec, DatasetOrder, Egg
from gateway.contract.public_address import parse_networks
from gateway.contract.reasons import Reason
from gateway.contract.records import Progress
from gateway.datasets.dataset import DatasetRun, RunCounts, RunState
from gateway.datasets.fold_queue import FoldQueue
from gateway.datasets.fold_threads import signal_of
from gateway.dispatch.egg_delivery import EggRefusal
from gateway.errors import ConflictError, EndpointNotFoundError, ForbiddenAddressError
from gateway.jobs.job import Attempt, Job, JobStatus
from gateway.jobs.outcome import Outcome
from gateway.jobs.run_days import RunDays, RunSubject, RunTotals
from gateway.projects.versions import VersionStore
from gateway.schedules.schedule import LedgerEntry, LedgerKind
from gateway.schedules.store import LedgerStore, ScheduleStore
from gateway.signals import announcing, delivery_store, endpoints, item_batches
from gateway.signals.delivering import DELAYS, Webhooks
from gateway.signals.delivery_store import Delivery, DeliveryState
from gateway.signals.endpoints import DISABLED_AFTER, Endpoint, EndpointFilter, EndpointFormat, secret_name
from gateway.signals.signatures import signed_headers
from gateway.signals.webhook_caller import WebhookCaller
from gateway.web.schemas.event import (
    BODIES,
    DeployEventBody,
    ItemsEventBody,
    NodeEventBody,
    RunEventBody,
    ScheduleEventBody,
)

LOOPBACK = parse_networks(["127.0.0.0/8"])
DONE = Outcome(JobStatus.FINISHED, Reason.COMPLETED, "3 pages")
BROKEN = Outcome(JobStatus.ERROR, Reason.PROCESS_CRASHED, "it crashed")

Look = Callable[[], Webhooks]


@pytest.fixture
def look(platform: Platform) -> Iterator[Look]:
    """Makes the calls that are due, by one worker."""
    worker = platform.webhooks(WebhookCaller(LOOPBACK))

    def once() -> Webhooks:
        worker.look()
        return worker

    yield once
    worker.close()


def make(platform: Platform, url: str, user_id: str = "ada", **fields: Any) -> Endpoint:
    return platform.endpoints.make(user_id, url, **fields)[0]


def running(platform: Platform, **fields: Any) -> Job:
    attempt = Attempt(attempt=1, node="n1", dispatched_at=platform.clock())
    given = {"status": JobStatus.RUNNING, "attempt": 1, "attempts": {"1": attempt}, "user_id": "ada", **fields}
    platform.jobs.insert(job := make_job(**given))
    return job


def end(platform: Platform, outcome: Outcome = DONE, **fields: Any) -> Job:
    job = running(platform, **fields)
    platform.jobs.finish(job, outcome)
    return job


def told(platform: Platform, endpoint: Endpoint) -> list[Delivery]:
    """All deliveries to the endpoint, the oldest first."""
    platform.announcing().look()
    return platform.deliveries.page([{"endpoint_id": endpoint.id}], 100, None)[0][::-1]


def types(platform: Platform, endpoint: Endpoint) -> list[str]:
    return sorted(one.type for one in told(platform, endpoint))


def wait_for(platform: Platform, endpoint: Endpoint, state: DeliveryState, tries: int = 1) -> Delivery:
    def found() -> Delivery | None:
        made, _ = platform.deliveries.page([{"endpoint_id": endpoint.id, "state": state.value}], 9, None)
        return next((one for one in made if one.tries == tries), None)

    return wait_until(found, what=f"a delivery that is {state}")


def test_it_is_told_of_every_turn_of_a_job_in_the_order_of_its_numbers(platform: Platform) -> None:
    endpoint = make(platform, "http://a.example/")
    job = running(platform, max_retries=3)
    platform.jobs.record_started(job.id, 1, platform.clock())
    platform.jobs.retry(platform.jobs.get(job.id), BROKEN, platform.clock())
    platform.jobs.pause(platform.jobs.get(job.id), "paused: by hand", None)
    waiting = platform.jobs.resume(platform.jobs.get(job.id))
    assert waiting is not None
    platform.jobs.finish(waiting, BROKEN)
    made = sorted(told(platform, endpoint), key=lambda one: json.loads(one.body)["data"]["seq"])
    assert [one.type for one in made] == ["job.started", "job.retried", "job.paused", "job.failed"]
    assert [json.loads(one.body)["data"]["seq"] for one in made] == [1, 2, 3, 4]
    assert len({one.message_id for one in made}) == 4


def test_a_job_that_ends_is_in_the_daily_sums_as_soon_as_it_is_announced(platform: Platform) -> None:
    """The job counts even if nobody listens, and once, whatever happens to it afterwards."""
    job = end(platform, BROKEN)
    for url in (None, "http://b.example/"):
        if url is not None:
            platform.jobs.add_webhook(job.id, url)
        assert not platform.announcing().look()
    assert (sums(platform).runs, sums(platform).failed) == ({"error": 1}, 1)
    # its start is reported only now: the figures of an ended job stay as they are
    assert platform.jobs.record_started(job.id, 1, platform.clock())
    assert platform.jobs.get(job.id).started_at is None
    assert platform.jobs.get(job.id).attempts["1"].started_at is not None


def test_a_damaged_sum_keeps_no_job_from_being_announced(platform: Platform) -> None:
    end(platform)
    platform.announcing().look()
    platform.database["run_days"].update_many({}, {"$set": {"rev": "x"}})
    endpoint = make(platform, "http://a.example/")
    end(platform)
    assert types(platform, endpoint) == ["job.finished"]
    platform.database["run_days"].update_many({}, {"$set": {"rev": 1}})
    platform.ahead += timedelta(seconds=announcing.AGAIN_SECONDS)
    assert types(platform, endpoint) == ["job.finished"]
    assert sums(platform).ended == 2


def sums(platform: Platform) -> RunTotals:
    (found,) = RunDays(platform.database, platform.clock).histories(RunSubject.SPIDER, ["default/seo"], 30).values()
    return found.total


def test_an_event_has_everything_for_a_sentence_and_a_link_and_is_as_described(platform: Platform) -> None:
    endpoint = make(platform, "http://a.example/")
    spec = CrawlSpec(spider="prices", project="shop", version="2.0", start_urls=("https://shop.example/" * 200,))
    job = end(platform, BROKEN, spec=spec, tags=["nightly"], schedule_id="0" * 32, started_at=platform.clock())
    (made,) = told(platform, endpoint)
    body = json.loads(made.body)
    data = body["data"]
    facts = {"project": "shop", "spider": "prices", "version": "2.0", "status": "error", "reason": "process_crashed"}
    assert facts.items() <= data.items()
    assert (data["message"], data["tags"], data["schedule_id"]) == ("it crashed", ["nightly"], "0" * 32)
    assert data["page_url"] == f"https://crawls.example.com/console/jobs/{job.id}"
    assert data["duration_seconds"] >= 0
    assert len(made.body) < 20_000
    for kind, model in BODIES.items():
        if kind.value.startswith("job."):
            model.model_validate(body, extra="forbid")


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (DONE, "job.finished"),
        (Outcome(JobStatus.PARTIAL, Reason.COMPLETED, "1 of 3 pages failed"), "job.partial"),
        (BROKEN, "job.failed"),
        (Outcome(JobStatus.CANCELLED, Reason.CANCELLED, "cancelled"), "job.cancelled"),
    ],
)
def test_each_end_is_an_event_of_its_own(platform: Platform, outcome: Outcome, kind: str) -> None:
    endpoint = make(platform, "http://a.example/")
    end(platform, outcome)
    assert types(platform, endpoint) == [kind]


def test_it_is_told_only_of_the_events_and_crawls_that_it_wants(platform: Platform) -> None:
    failures = make(platform, "http://a.example/", events=("job.failed",))
    shop = make(platform, "http://b.example/", filter=EndpointFilter(projects=("shop",), tags=("nightly", "weekly")))
    other = make(platform, "http://c.example/", user_id="bob")
    everybody = make(platform, "http://d.example/", user_id="root", of_all_users=True)
    end(platform)
    end(platform, BROKEN)
    end(platform, spec=CrawlSpec(spider="s", project="shop", start_urls=("http://x/",)), tags=["weekly", "x"])
    end(platform, spec=CrawlSpec(spider="s", project="shop", start_urls=("http://x/",)))
    assert types(platform, failures) == ["job.failed"]
    assert types(platform, shop) == ["job.finished"]
    assert types(platform, other) == []
    assert len(told(platform, everybody)) == 4


def test_it_is_told_of_what_a_run_has_changed_and_of_one_that_is_held(platform: Platform) -> None:
    endpoint = make(platform, "http://a.example/", events=("dataset.changed", "run.held"))
    queue, now = FoldQueue(platform.database, platform.clock), platform.clock()
    spec = CrawlSpec(spider="s", start_urls=("http://x/",), dataset=DatasetOrder(name="prices"))
    facts = {"dataset": "d", "scope": "s", "started_at": now, "ended_at": now, "at": now}
    changed = {"state": RunState.PUBLISHED, "counts": RunCounts(items=9, new=2, removed=1), "last_seq": 12}
    same = {"state": RunState.PUBLISHED, "counts": RunCounts(items=9, same=9), "last_seq": 12}
    for run in (changed, same, {"state": RunState.HELD, "message": "half of it is gone"}):
        job = end(platform, spec=spec)
        for _ in range(2):  # a worker that got no answer repeats the write
            queue.done(job.id, signal=signal_of(DatasetRun(job_id=job.id, **facts, **run), job))
    made = {one.type: json.loads(one.body) for one in told(platform, endpoint)}
    assert made.keys() == {"dataset.changed", "run.held"}
    told_of = made["dataset.changed"]["data"]
    assert {
        "dataset": "prices",
        "attempt": 1,
        "items": 9,
        "new": 2,
        "changed": 0,
        "removed": 1,
        "last_seq": 12,
    }.items() <= told_of.items()
    assert "/console/datasets/prices/runs/" in told_of["page_url"]
    assert made["run.held"]["data"]["message"] == "half of it is gone"
    assert len(told(platform, endpoint)) == 2
    for body in made.values():
        RunEventBody.model_validate(body, extra="forbid")


def test_a_channel_of_slack_is_told_in_a_sentence_with_a_link(platform: Platform, look: Look) -> None:
    with Receiver(answer()) as slack:
        endpoint = make(platform, slack.url(), format=EndpointFormat.SLACK)
        spec = CrawlSpec(spider="prices", project="shop", start_urls=("http://x/",))
        job = end(platform, Outcome(JobStatus.ERROR, Reason.PROCESS_CRASHED, "12 of 400 pages, first 503"), spec=spec)
        look()
        wait_for(platform, endpoint, DeliveryState.DELIVERED)
        page = f"https://crawls.example.com/console/jobs/{job.id}"
        told_of = json.loads(slack.calls[0].body)
        assert told_of == {"text": f"<{page}|shop/prices> failed: 12 of 400 pages, first 503"}
        assert slack.calls[0].headers["content-type"] == "application/json"


def test_it_is_told_of_occurrences_that_did_not_run(platform: Platform) -> None:
    endpoint = make(platform, "http://a.example/", events=("schedule.skipped", "schedule.missed", "schedule.late"))
    ledger, now = LedgerStore(platform.database), platform.clock()
    schedule = make_schedule(user_id="ada", name="each morning")
    ScheduleStore(platform.database).insert(schedule)
    facts = {"at": now, "due": now, "recorded_at": now, "late_by_seconds": 90, "rev": 1, "announce_due": now}
    entries = [
        LedgerEntry(job_id=f"{number:032x}", schedule_id=of, kind=kind, reason="it is not over", **facts)
        for number, (of, kind) in enumerate(
            [
                (schedule.id, LedgerKind.SKIPPED),
                (schedule.id, LedgerKind.MISSED),
                ("0" * 32, LedgerKind.MISSED),
                (schedule.id, LedgerKind.FIRED),
            ]
        )
    ]
    # one beat recorded the occurrence as skipped, and another one ran it in time
    skipped = entries[0].model_copy(update={"job_id": "9" * 32})
    ran = skipped.model_copy(update={"kind": LedgerKind.FIRED, "late_by_seconds": 0.5, "announce_due": None})
    for _ in range(2):  # a beat that got no answer repeats the write
        ledger.record([*entries, skipped])
        ledger.record([ran])
        assert types(platform, endpoint) == ["schedule.late", "schedule.missed", "schedule.skipped"]
    bodies = [json.loads(one.body) for one in told(platform, endpoint)]
    for body in bodies:
        ScheduleEventBody.model_validate(body, extra="forbid")
        is_late = body["type"] == "schedule.late"
        assert is_late == ("job_id" in body["data"]) == (body["data"].get("late_by_seconds") == 90)
    body = bodies[0]
    assert (body["data"]["name"], body["data"]["message"]) == ("each morning", "it is not over")
    assert not ledger.to_announce(platform.clock(), 9)


def test_who_asks_for_it_is_told_each_second_how_many_items_a_running_job_has(platform: Platform) -> None:
    asking = make(platform, "http://a.example/", events=("items.batch",))
    other = make(platform, "http://b.example/")
    spec = CrawlSpec(spider="prices", project="shop", start_urls=("http://x/",))
    job = running(platform, spec=spec)
    running(platform, user_id="bert", progress=Progress(items_count=7))
    workers = [platform.batches(), platform.batches()]

    def counts(items: int) -> list[int]:
        platform.jobs.record_progress(job.id, 1, Progress(items_count=items))
        platform.ahead += timedelta(seconds=1)
        for worker in workers:
            worker.look()
            worker.look()
        found, _ = platform.deliveries.page([{"endpoint_id": asking.id}], 100, None)
        bodies = [json.loads(one.body) for one in found]
        for body in bodies:
            ItemsEventBody.model_validate(body, extra="forbid")
            assert body["data"]["items_url"] == f"https://crawls.example.com/jobs/{job.id}/items?attempt=1"
        return sorted(body["data"]["items_count"] for body in bodies)

    assert counts(0) == []
    assert counts(3) == counts(3) == [3]
    assert counts(40) == [3, 40]
    assert platform.deliveries.page([{"endpoint_id": other.id}], 9, None)[0] == []
    platform.endpoints.change(asking, {"paused": True})
    platform.ahead += timedelta(seconds=9)
    assert counts(50) == [3, 40]


def test_a_count_that_could_not_be_told_is_not_told_again(platform: Platform, look: Look) -> None:
    with Receiver(answer(503)) as receiver:
        endpoint = make(platform, receiver.url(), events=("items.batch",))
        running(platform, progress=Progress(items_count=7))
        look()
        wait_for(platform, endpoint, DeliveryState.FAILED)
        assert len(receiver.calls) == 1


def test_of_the_counts_that_were_told_the_last_one_stays(platform: Platform, look: Look) -> None:
    with Receiver(answer(204)) as receiver:
        endpoint = make(platform, receiver.url(), events=("items.batch",))
        job = running(platform)
        for items in (3, 7, 9):
            platform.jobs.record_progress(job.id, 1, Progress(items_count=items))
            platform.ahead += timedelta(seconds=2)
            look()
            wait_until(lambda items=items: len(receiver.calls) == (3, 7, 9).index(items) + 1)
        wait_for(platform, endpoint, DeliveryState.DELIVERED)
        wait_until(lambda: [json.loads(one.body)["data"]["items_count"] for one in told(platform, endpoint)] == [9])


def test_of_many_running_jobs_each_is_told_and_what_waits_for_an_endpoint_is_bounded(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_batches, "JOBS", 2)
    monkeypatch.setattr(item_batches, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(item_batches, "MOST_WAITING", 6)
    asking = make(platform, "http://a.example/", events=("items.batch",))
    jobs = [running(platform, progress=Progress(items_count=1)) for _ in range(5)]
    worker = platform.batches()

    def told_of() -> list[str | None]:
        for _ in range(3):  # a look takes two jobs
            worker.look()
            platform.ahead += timedelta(seconds=1)
        return [one.job_id for one in told(platform, asking)]

    assert sorted(map(str, told_of())) == sorted(job.id for job in jobs)
    for job in jobs:
        platform.jobs.record_progress(job.id, 1, Progress(items_count=2))
    assert len(told_of()) == len(told_of()) == 6
    for one in told(platform, asking):
        platform.deliveries.note(one, DeliveryState.DELIVERED)
    assert len(told_of()) == 10


def test_admins_are_told_once_of_a_node_that_is_down_and_up_again(platform: Platform) -> None:
    admin = make(platform, "http://a.example/", user_id="root", of_all_users=True)
    user = make(platform, "http://b.example/")
    workers = [platform.node_states(), platform.node_states()]

    def pass_time(*alive: str) -> None:
        for _ in range(9):
            platform.ahead += DEAD_AFTER / 6
            for node in alive:
                platform.heartbeat(node)
            for worker in workers:
                worker.look()

    for node in ("n1", "n2", "drained"):
        platform.heartbeat(node)
    platform.nodes.drain("drained")
    pass_time("n1", "n2", "drained")
    assert types(platform, admin) == []
    pass_time("n1")
    assert types(platform, admin) == ["node.down"]
    pass_time("n1", "n2", "drained")
    assert types(platform, admin) == ["node.down", "node.up"]
    pass_time("n1", "n2")
    assert types(platform, admin) == ["node.down", "node.up"]
    for one in told(platform, admin):
        body = json.loads(one.body)
        NodeEventBody.model_validate(body, extra="forbid")
        assert body["data"]["node"] == "n2"
    assert types(platform, user) == []


def test_a_version_that_cannot_be_announced_keeps_no_other_from_being_announced(platform: Platform) -> None:
    admin = make(platform, "http://a.example/", user_id="root", of_all_users=True)
    versions = VersionStore(platform.database)
    for project in ("a-broken", "shop"):
        versions.change(project, lambda known: known.with_deployed("1.0"))
    platform.database["project_versions"].update_one({"_id": "a-broken"}, {"$set": {"history": []}})
    platform.deployments().look()
    assert [json.loads(one.body)["data"]["project"] for one in told(platform, admin)] == ["shop"]


def test_admins_are_told_once_of_each_version_that_is_live(platform: Platform) -> None:
    admin = make(platform, "http://a.example/", user_id="root", of_all_users=True)
    other = make(
        platform, "http://b.example/", user_id="root", of_all_users=True, filter=EndpointFilter(projects=("news",))
    )
    workers, versions = [platform.deployments(), platform.deployments()], VersionStore(platform.database)

    def live() -> list[str]:
        for _ in range(2):
            platform.ahead += timedelta(seconds=9)
            for worker in workers:
                worker.look()
        made = [json.loads(one.body) for one in told(platform, admin)]
        for body in made:
            DeployEventBody.model_validate(body, extra="forbid")
            assert (body["type"], body["data"]["project"]) == ("deploy.live", "shop")
        return [body["data"]["version"] for body in made]

    versions.change("shop", lambda known: known.with_deployed("1.0"))
    assert live() == ["1.0"]
    # somebody who got no answer deploys the same content again
    versions.change("shop", lambda known: known.with_deployed("1.0"))
    assert live() == ["1.0"]
    versions.change("shop", lambda known: known.with_deployed("1.0", other_content=True))
    assert live() == ["1.0"] * 2
    # two deployments without an announcement in between are announced once
    versions.change("shop", lambda known: known.with_deployed("2.0"))
    versions.change("shop", lambda known: known.with_deployed("2.0"))
    assert sorted(live()) == ["1.0", "1.0", "2.0"]
    versions.change("shop", lambda known: known.with_latest("1.0"))
    assert sorted(live()) == ["1.0", "1.0", "1.0", "2.0"]
    versions.change("shop", lambda known: known.without("2.0").without("1.0"))
    assert len(live()) == 4
    assert types(platform, other) == []


def test_admins_are_told_once_of_a_version_that_nodes_refuse(platform: Platform) -> None:
    admin = make(platform, "http://a.example/", user_id="root", of_all_users=True)
    user = make(platform, "http://b.example/")
    deployments, egg = platform.deployments(), Egg("shop", "1.5")
    for node in ("n1", "n2"):
        deployments.refused(EggRefusal(egg, "5f" * 32, node, "it has no module shop", Reason.EGG_UNREADABLE))
    deployments.refused(EggRefusal(egg, "7d" * 32, "n1", "it has no module shop", Reason.EGG_UNREADABLE))
    bodies = [json.loads(one.body) for one in told(platform, admin)]
    assert [body["type"] for body in bodies] == ["deploy.failed"] * 2
    for body in bodies:
        DeployEventBody.model_validate(body, extra="forbid")
    assert {"version": "1.5", "node": "n1", "message": "it has no module shop"}.items() <= bodies[0]["data"].items()
    assert types(platform, user) == []


def test_its_calls_are_signed_with_its_own_secret_also_while_that_is_exchanged(
    platform: Platform, look: Look
) -> None:
    headers: list[dict[str, str]] = []
    with Receiver(answer()) as receiver:
        endpoint, secret = platform.endpoints.make("ada", receiver.url())
        renewed = platform.webhook_secrets.renew(secret_name(endpoint.id), timedelta(hours=1))
        end(platform)
        look()
        made = wait_for(platform, endpoint, DeliveryState.DELIVERED)
        headers.append(receiver.calls[0].headers)
        body = receiver.calls[0].body
    assert (made.calls[0].status, made.due_at) == (200, None)
    for known in (secret.secret, renewed.secret):
        Webhook(known).verify(body.decode(), headers[0])
    assert headers[0]["webhook-id"] == made.message_id
    assert signed_headers("x", platform.clock(), body, [secret.secret])


def test_one_whose_secret_is_gone_is_not_called_unsigned(platform: Platform, look: Look) -> None:
    with Receiver(answer()) as receiver:
        endpoint = make(platform, receiver.url())
        # as if the endpoint were deleted at this moment
        platform.webhook_secrets.forget(secret_name(endpoint.id))
        end(platform)
        look()
        made = wait_for(platform, endpoint, DeliveryState.PENDING)
        assert (made.calls[0].problem, receiver.calls) == ("its secret is gone", [])


def test_one_that_fails_is_called_again_with_the_same_id_and_the_others_are_not(
    platform: Platform, look: Look
) -> None:
    with Receiver(answer(503)) as broken, Receiver(answer()) as good:
        failing, other = make(platform, broken.url()), make(platform, good.url())
        end(platform)
        look()
        first = wait_for(platform, failing, DeliveryState.PENDING)
        wait_for(platform, other, DeliveryState.DELIVERED)
        assert platform.endpoints.get(failing.id).failing_since is not None
        broken.behaviour = answer()
        platform.ahead += timedelta(seconds=DELAYS[0] * 2)
        look()
        wait_for(platform, failing, DeliveryState.DELIVERED, 2)
        ids = [call.headers["webhook-id"] for call in broken.calls]
        assert ids == [first.message_id] * 2
        assert len(good.calls) == 1
        assert platform.endpoints.get(failing.id).failing_since is None


def test_what_it_was_not_told_while_it_was_paused_is_sent_on_request(platform: Platform, look: Look) -> None:
    with Receiver(answer()) as receiver:
        endpoint = make(platform, receiver.url(), paused=True)
        end(platform)
        look()
        wait_for(platform, endpoint, DeliveryState.SKIPPED, 0)
        with pytest.raises(ConflictError):
            platform.endpoints.test(endpoint)
        with pytest.raises(ConflictError):
            platform.endpoints.send_again(endpoint, missing=True)
        active = platform.endpoints.change(endpoint, {"paused": False})
        assert platform.endpoints.send_again(active, missing=True) == 1
        look()
        wait_for(platform, active, DeliveryState.DELIVERED)
        assert platform.endpoints.again({"endpoint_id": endpoint.id}, missing=True) == 0
        # deliveries that have succeeded are sent again only if asked for by id or by time
        since = platform.clock() - timedelta(minutes=1)
        assert platform.endpoints.again({"endpoint_id": endpoint.id}, since=since) == 1
        wait_until(lambda: look() and len(receiver.calls) == 2, what="one more call")


def test_thousands_are_called_again_at_one_request(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_store, "AGAIN_AT_ONCE", 2)
    endpoint = make(platform, "http://a.example/", paused=True)
    for _ in range(5):
        end(platform)
    assert {one.state for one in told(platform, endpoint)} == {DeliveryState.SKIPPED}
    assert platform.endpoints.again({"endpoint_id": endpoint.id}, missing=True) == 5
    assert {one.state for one in told(platform, endpoint)} == {DeliveryState.PENDING}


def test_one_that_is_paused_with_a_call_to_come_is_not_called(platform: Platform, look: Look) -> None:
    with Receiver(answer()) as receiver:
        endpoint = make(platform, receiver.url())
        end(platform)
        assert told(platform, endpoint)[0].state is DeliveryState.PENDING
        platform.endpoints.change(endpoint, {"paused": True})
        look()
        wait_for(platform, endpoint, DeliveryState.SKIPPED, 0)
        assert receiver.calls == []


def test_410_disables_it_and_the_users_others_are_told(platform: Platform, look: Look) -> None:
    with Receiver(answer(410)) as gone:
        endpoint, other = make(platform, gone.url()), make(platform, "http://a.example/")
        stranger = make(platform, "http://b.example/", user_id="bob")
        end(platform)
        look()
        wait_for(platform, endpoint, DeliveryState.REFUSED)
        found = platform.endpoints.get(endpoint.id)
        assert (found.is_active, found.disabled_reason) == (False, "it answered 410: it wants no further call")
        assert types(platform, other) == ["endpoint.disabled", "job.finished"]
        assert types(platform, stranger) == []
        assert platform.endpoints.change(found, {"paused": False}).is_active


def test_the_others_are_told_each_time_that_it_is_disabled(platform: Platform) -> None:
    endpoint, other = make(platform, "http://a.example/"), make(platform, "http://b.example/")
    for _ in range(2):
        for _ in range(2):  # a worker that dies after it has told the others is repeated
            platform.endpoints.called(endpoint, "answered 410", is_last=True)
        platform.endpoints.change(platform.endpoints.get(endpoint.id), {"paused": False})
        platform.ahead += timedelta(seconds=1)
    assert types(platform, other) == ["endpoint.disabled"] * 2


def test_a_call_that_began_before_a_change_does_not_undo_it(platform: Platform) -> None:
    began = make(platform, "http://a.example/")
    platform.endpoints.called(began, "answered 500", is_last=False)
    began = platform.endpoints.get(began.id)
    platform.ahead += DISABLED_AFTER
    platform.endpoints.change(began, {"paused": False})
    platform.endpoints.called(began, "answered 500", is_last=False)
    assert platform.endpoints.get(began.id).is_active
    platform.endpoints.change(began, {"url": "http://b.example/"})
    platform.endpoints.called(began, "answered 410", is_last=True)
    assert platform.endpoints.get(began.id).is_active


def test_a_form_that_sends_the_same_url_again_has_nothing_called_again(platform: Platform) -> None:
    endpoint = make(platform, "http://a.example/")
    platform.endpoints.called(endpoint, "answered 410", is_last=True)
    endpoint = platform.endpoints.get(endpoint.id)
    same = {"url": endpoint.url, "description": "the shop's channel"}
    assert platform.endpoints.change(endpoint, same).disabled_at == endpoint.disabled_at
    assert platform.endpoints.change(endpoint, {"url": "http://b.example/"}).is_active


def test_a_success_counts_also_if_the_first_failure_came_while_it_was_called(platform: Platform) -> None:
    began = make(platform, "http://a.example/")
    platform.endpoints.called(began, "answered 500", is_last=False)
    platform.endpoints.called(began, None, is_last=False)
    assert platform.endpoints.get(began.id).failing_since is None


def test_days_of_nothing_but_failures_disable_it_and_one_success_in_between_does_not(platform: Platform) -> None:
    endpoint = make(platform, "http://a.example/")

    def called(problem: str | None) -> Endpoint:
        platform.endpoints.called(platform.endpoints.get(endpoint.id), problem, is_last=False)
        return platform.endpoints.get(endpoint.id)

    assert called("answered 500").is_active
    platform.ahead += DISABLED_AFTER - timedelta(hours=1)
    assert called(None).failing_since is None
    assert called("answered 500").is_active
    platform.ahead += DISABLED_AFTER - timedelta(hours=1)
    assert called("answered 500").is_active
    platform.ahead += timedelta(hours=2)
    given_up = called("answered 503")
    assert given_up.disabled_reason == "every call has failed for 5 days, the last: answered 503"
    # a further failure changes nothing
    assert called("answered 500") == given_up


def test_a_worker_without_the_key_of_secrets_is_no_fault_of_the_receiver(platform: Platform, look: Look) -> None:
    with Receiver(answer()) as receiver:
        endpoint = make(platform, receiver.url())
        platform.keys = ["another" * 6]
        end(platform)
        look()
        made = wait_for(platform, endpoint, DeliveryState.PENDING)
        assert "SECRETS_KEY" in (made.calls[0].problem or "")
        assert platform.endpoints.get(endpoint.id).failing_since is None
        assert receiver.calls == []


def test_a_deleted_one_takes_its_deliveries_and_its_secret_with_it(platform: Platform, look: Look) -> None:
    endpoint = make(platform, "http://127.0.0.1:9/")
    end(platform)
    assert told(platform, endpoint)
    platform.endpoints.delete(endpoint)
    assert told(platform, endpoint) == []
    assert platform.webhook_secrets.valid(secret_name(endpoint.id)) == []
    with pytest.raises(EndpointNotFoundError):
        platform.endpoints.get(endpoint.id)
    look()


def test_addresses_inside_and_too_many_are_refused(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ForbiddenAddressError, match="WEBHOOK_ALLOW_NETWORKS"):
        make(platform, "http://10.0.0.1/")
    monkeypatch.setattr(endpoints, "MOST_ENDPOINTS", 1)
    made = make(platform, "http://a.example/")
    with pytest.raises(ConflictError, match="at most 1"):
        make(platform, "http://b.example/")
    with pytest.raises(ForbiddenAddressError):
        platform.endpoints.change(made, {"url": "http://10.0.0.2/"})
    make(platform, "http://a.example/", user_id="bob")


def test_a_job_that_cannot_be_announced_keeps_no_other_waiting(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = make(platform, "http://a.example/")
    broken, good = end(platform), end(platform)
    events_of = announcing.events_of

    def breaks(job: Job, url: str) -> Any:
        if job.id == broken.id:
            raise RecursionError
        return events_of(job, url)

    monkeypatch.setattr(announcing, "events_of", breaks)
    assert [one.job_id for one in told(platform, endpoint)] == [good.id]
    monkeypatch.undo()
    platform.ahead += timedelta(minutes=2)
    assert {one.job_id for one in told(platform, endpoint)} == {good.id, broken.id}
