"""Who is told of a job's end, and how often: the queue of calls, its shares, its leases and its close."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import receivers
from conftest import Platform
from jobs import make_job
from receivers import Receiver, answer
from stack import wait_until
from standardwebhooks import Webhook

from gateway.contract.public_address import parse_networks
from gateway.contract.reasons import Reason
from gateway.datasets.fold_queue import FoldQueue
from gateway.jobs.job import Job, JobSignal, JobStatus, Turn
from gateway.jobs.outcome import Outcome
from gateway.jobs.queue import MOST_SIGNALS
from gateway.signals import announcing, delivering, webhook_caller
from gateway.signals.announcing import of_webhook
from gateway.signals.apprise_caller import PROCESSES
from gateway.signals.delivering import (
    CALLS,
    DELAYS,
    HOST_CALLS,
    LEASE_SLACK,
    SPREAD,
    USER_CALLS,
    OutgoingCaller,
    Shares,
    Webhooks,
    what_follows,
)
from gateway.signals.delivery_store import Delivery, DeliveryState, DeliveryTry
from gateway.signals.endpoints import SEALED_HOST
from gateway.signals.signatures import signed_headers
from gateway.signals.webhook_caller import CALL_SECONDS, CallResult, Headers, WebhookCaller

LOOPBACK = parse_networks(["127.0.0.0/8"])
LEASE = timedelta(seconds=CALL_SECONDS + LEASE_SLACK)


class Remembering:
    """Stands for all receivers. Remembers the calls; the first `failures` of them fail."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.calls: list[tuple[str, bytes]] = []
        self.headers: list[dict[str, str]] = []

    async def post(self, _user_id: str, url: str, body: bytes, headers: Headers = ()) -> CallResult:
        self.calls.append((url, body))
        self.headers.append(dict(headers))
        return CallResult("answered 500" if len(self.calls) <= self.failures else None)

    def urls(self) -> list[str]:
        return [url for url, _ in self.calls]


Call = Callable[[OutgoingCaller], Webhooks]


@pytest.fixture
def call(platform: Platform) -> Iterator[Call]:
    """Makes the calls that are due, with a given caller. Each caller is a worker of its own."""
    made: dict[int, Webhooks] = {}

    def look(caller: OutgoingCaller) -> Webhooks:
        one = made.setdefault(id(caller), platform.webhooks(caller))
        one.look()
        return one

    yield look
    for one in made.values():
        one.close()


def ended(platform: Platform, *urls: str, **fields: Any) -> Job:
    job = make_job(status=JobStatus.RUNNING, webhooks=list(urls), **fields)
    platform.jobs.insert(job)
    platform.completion.end_waiting(job, Outcome(JobStatus.FINISHED, Reason.COMPLETED, "3 pages"))
    return platform.jobs.get(job.id)


def wait_for_calls(world: Remembering, count: int) -> None:
    wait_until(lambda: len(world.calls) == count, what=f"{count} calls")


def calls_of(platform: Platform, job: Job) -> dict[str, Delivery]:
    """The job's deliveries, by their URLs."""
    found, _ = platform.deliveries.page([{"job_id": job.id}], 100, None)
    return {one.url: one for one in found}


def wait_until_over(platform: Platform, *jobs: Job) -> None:
    """Wait until no more calls of these jobs are to come."""

    def over(job: Job) -> bool:
        made = calls_of(platform, job)
        return not platform.jobs.get(job.id).signals and all(one.due_at is None for one in made.values())

    wait_until(lambda: all(map(over, jobs)), what="the last call")


def wait_for_failures(platform: Platform, job: Job, count: int) -> list[Delivery]:
    """Wait until each delivery of the job that has not succeeded was tried so often. Returns these deliveries."""

    def failed() -> list[Delivery] | None:
        made = [one for one in calls_of(platform, job).values() if one.state is not DeliveryState.DELIVERED]
        return made if made and all(one.tries == count for one in made) else None

    return wait_until(failed, what=f"{count} failures")


def test_every_webhook_is_told_once_how_the_job_ended(platform: Platform, call: Call) -> None:
    urls = ["http://a.example/", "http://b.example/"]
    job, world = ended(platform, *urls), Remembering()
    assert ("call_webhooks", job.id) in platform.woken
    call(world)
    wait_until_over(platform, job)
    assert sorted(platform.jobs.get(job.id).webhooks_delivered) == urls
    call(world)
    call(another := Remembering())
    other = ended(platform, "http://c.example/")
    call(another)
    wait_until_over(platform, other)
    assert sorted(world.urls() + another.urls()) == [*urls, "http://c.example/"]
    told = json.loads(world.calls[0][1])
    assert (told["event"], told["job_id"], told["status"]) == ("job.ended", job.id, "finished")


def test_a_webhook_is_told_which_schedule_the_job_was_a_run_of(platform: Platform, call: Call) -> None:
    world = Remembering()
    for number, fields in enumerate([{}, {"schedule_id": "0" * 32}], 1):
        ended(platform, "http://a.example/", **fields)
        call(world)
        wait_for_calls(world, number)
    plain, of_schedule = (json.loads(body) for _, body in world.calls)
    assert (plain.keys() ^ of_schedule.keys(), of_schedule["schedule_id"]) == ({"schedule_id"}, "0" * 32)


def test_a_webhook_that_fails_is_called_again_later_and_given_up_in_the_end(platform: Platform, call: Call) -> None:
    job, world = ended(platform, "http://a.example/", "http://b.example/"), Remembering(failures=99)
    for done, delay in enumerate((*DELAYS, 0), 1):
        call(world)
        wait_for_calls(world, 2 * done)
        made = wait_for_failures(platform, job, done)
        for one in made if delay else ():
            assert one.due_at is not None
            assert 0.9 < (one.due_at - platform.clock()).total_seconds() / delay < 1 + SPREAD
        # nothing is due yet: this look makes no call
        call(world)
        platform.ahead += timedelta(seconds=delay * (1 + SPREAD))
    assert {one.state for one in made} == {DeliveryState.FAILED}
    # nothing but the new call is due
    ended(platform, "http://c.example/")
    call(world)
    wait_for_calls(world, 2 * len(DELAYS) + 3)
    assert world.urls()[-1] == "http://c.example/"


def test_only_those_that_failed_are_called_again(platform: Platform, call: Call) -> None:
    job, world = ended(platform, "http://a.example/", "http://b.example/"), Remembering(failures=1)
    call(world)
    wait_for_calls(world, 2)
    (failed,) = wait_for_failures(platform, job, 1)
    assert failed.url == world.urls()[0]
    assert failed.calls[0].problem == "answered 500"
    platform.ahead += timedelta(minutes=10)
    call(world)
    wait_until_over(platform, job)
    assert platform.jobs.get(job.id).webhook_message is None
    assert sorted(world.urls()) == sorted(["http://a.example/", "http://b.example/", failed.url])


def test_a_receiver_that_asks_for_a_pause_gets_it_and_delays_no_other(platform: Platform, call: Call) -> None:
    with Receiver(answer(429, "Retry-After: 3600")) as busy, Receiver(answer(500)) as broken:
        job = ended(platform, busy.url(), broken.url())
        call(caller := WebhookCaller(LOOPBACK))
        wait_for_failures(platform, job, 1)
        platform.ahead += timedelta(seconds=10)
        broken.behaviour = busy.behaviour = answer()
        call(caller)
        wait_until(lambda: platform.jobs.get(job.id).webhooks_delivered == [broken.url()], what="the other call")
        assert (len(busy.calls), len(broken.calls)) == (1, 2)
        platform.ahead += timedelta(hours=1)
        call(caller)
        wait_until_over(platform, job)
        assert platform.jobs.get(job.id).webhooks_delivered == [broken.url(), busy.url()]


def test_a_receiver_that_is_gone_is_not_called_again_unless_somebody_asks_for_it(
    platform: Platform, call: Call
) -> None:
    with Receiver(answer(410)) as gone:
        job = ended(platform, gone.url())
        call(caller := WebhookCaller(LOOPBACK))
        wait_for_failures(platform, job, 1)
        wait_until_over(platform, job)
        assert calls_of(platform, job)[gone.url()].state is DeliveryState.REFUSED
        assert platform.jobs.get(job.id).webhook_message == "127.0.0.1: answered 410, so it is not called again"
        gone.behaviour = answer()
        platform.jobs.add_webhook(job.id, gone.url())
        call(caller)
        wait_until(lambda: platform.jobs.get(job.id).webhooks_delivered == [gone.url()], what="one more call")
        assert platform.jobs.get(job.id).webhook_message is None


def test_a_pause_is_as_long_as_was_asked_for_and_never_shorter_than_the_delay(platform: Platform) -> None:
    now = platform.clock()
    long, short = (CallResult("answered 429", pause=timedelta(seconds=seconds)) for seconds in (7200, 1))
    assert what_follows(1, long, now, lambda: 0) == (DeliveryState.PENDING, now + timedelta(hours=2))
    assert what_follows(1, short, now, lambda: 0) == (DeliveryState.PENDING, now + timedelta(seconds=DELAYS[1]))
    assert what_follows(len(DELAYS), long, now) == (DeliveryState.FAILED, None)


def test_what_the_receiver_has_answered_is_kept_as_far_as_it_came_soon(platform: Platform, call: Call) -> None:
    def explain(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 9999\r\n\r\n" + b"because\0" * 200)
        receivers.never(connection)

    with Receiver(explain) as receiver:
        job = ended(platform, receiver.url())
        call(WebhookCaller(LOOPBACK))
        (made,) = wait_for_failures(platform, job, 1)
    assert (made.calls[0].status, made.calls[0].answer) == (503, "because\ufffd" * 128)
    assert made.calls[0].seconds < CALL_SECONDS


def test_who_dies_in_the_midst_of_a_call_is_followed_once_its_lease_lapses(platform: Platform, call: Call) -> None:
    job, world = ended(platform, "http://a.example/"), Remembering()
    made = of_webhook(job, "http://a.example/", platform.clock())
    platform.deliveries.add([made])
    # a first worker has begun the call, and dies
    assert platform.deliveries.claim(made.id, platform.clock() + LEASE) is not None
    call(world)
    other = ended(platform, "http://b.example/")
    call(world)
    wait_until_over(platform, other)
    assert world.urls() == ["http://b.example/"]
    platform.ahead += LEASE
    call(world)
    wait_until_over(platform, job)
    assert world.urls() == ["http://b.example/", "http://a.example/"]


def test_what_was_delivered_after_the_lease_lapsed_counts_all_the_same(platform: Platform) -> None:
    made = of_webhook(ended(platform, "http://a.example/"), "http://a.example/", platform.clock())
    platform.deliveries.add([made])
    slow = platform.deliveries.claim(made.id, platform.clock())
    assert slow is not None
    again = platform.deliveries.claim(made.id, platform.clock() + LEASE)
    assert again is not None
    said = DeliveryTry(at=platform.clock(), seconds=1)
    # a late failure does not count, because another worker has the delivery
    platform.deliveries.note(slow, DeliveryState.FAILED, None, said)
    assert platform.deliveries.get(made.id) == again
    platform.deliveries.note(slow, DeliveryState.DELIVERED, None, said)
    assert platform.deliveries.claim(made.id, platform.clock() + LEASE) is None


def test_a_webhook_added_to_an_ended_job_is_called_too(platform: Platform, call: Call) -> None:
    job, world = ended(platform), Remembering()
    platform.jobs.add_webhook(job.id, "http://late.example/")
    call(world)
    wait_until_over(platform, job)
    assert world.urls() == ["http://late.example/"]


def test_a_webhook_that_is_added_long_after_the_end_is_kept_as_long_as_any(platform: Platform) -> None:
    job = ended(platform)
    platform.announcing().look()
    platform.ahead += timedelta(days=40)
    platform.jobs.add_webhook(job.id, "http://late.example/")
    platform.announcing().look()
    assert platform.deliveries.to_come(platform.clock() - timedelta(seconds=5)).waiting == 0
    platform.deliveries.forget(platform.clock() - timedelta(days=30), 9)
    assert calls_of(platform, job).keys() == {"http://late.example/"}


def test_a_request_that_is_repeated_drives_out_nothing_that_is_to_be_announced(platform: Platform) -> None:
    job = ended(platform)
    for _ in range(MOST_SIGNALS):
        platform.jobs.add_webhook(job.id, "http://late.example/")
    assert [signal.turn for signal in platform.jobs.get(job.id).signals] == [Turn.ENDED, Turn.WEBHOOK_ADDED]


def test_what_a_release_before_this_one_was_to_call_is_called(platform: Platform, call: Call) -> None:
    job, world = ended(platform, "http://a.example/", "http://b.example/"), Remembering()
    older = {"webhooks_due": platform.clock(), "webhooks_delivered": ["http://b.example/"], "webhook_failures": 2}
    gone = {"signals": "", "signals_due": "", "signalled": ""}
    platform.database["jobs"].update_one({"_id": job.id}, {"$set": older, "$unset": gone})
    call(world)
    wait_until(lambda: world.urls() == ["http://a.example/"], what="its call")
    wait_until_over(platform, job)
    assert platform.jobs.get(job.id).webhooks_due is None


def test_a_job_of_an_earlier_release_that_cannot_be_changed_keeps_no_other_from_being_called(
    platform: Platform, call: Call
) -> None:
    damaged, job, world = ended(platform), ended(platform, "http://a.example/", user_id="bob"), Remembering()
    older = {"webhooks": ["http://b.example/"], "webhooks_due": platform.clock(), "signals": 7}
    platform.database["jobs"].update_one({"_id": damaged.id}, {"$set": older})
    call(world)
    wait_until_over(platform, job)
    assert world.urls() == ["http://a.example/"]


def test_a_job_is_announced_once_however_many_do_so_at_once(platform: Platform) -> None:
    job = ended(platform, "http://a.example/")
    first, second = platform.announcing(), platform.announcing()
    read = platform.jobs.to_announce("", 10)
    first.look()
    # the second has read the job before that, and adds nothing; a signal that came since is kept
    platform.jobs.add_webhook(job.id, "http://late.example/")
    platform.jobs.announced(read)
    assert [signal.url for signal in platform.jobs.get(job.id).signals] == ["http://late.example/"]
    second.look()
    assert calls_of(platform, job).keys() == {"http://a.example/", "http://late.example/"}
    found = platform.jobs.get(job.id)
    assert (found.signals, found.signals_due, found.signalled) == ([], None, 2)


def test_a_signal_that_a_full_list_gets_meanwhile_is_announced_next(platform: Platform) -> None:
    job = make_job(status=JobStatus.FINISHED, live_key=None, settled=True)
    platform.jobs.insert(job)
    for number in range(MOST_SIGNALS):
        platform.jobs.add_webhook(job.id, f"http://{number}.example/")
    read = platform.jobs.to_announce("", 9)
    assert len(read[0].signals) == MOST_SIGNALS
    held = JobSignal(turn=Turn.RUN_HELD, at=platform.clock())
    FoldQueue(platform.database, platform.clock).done(job.id, signal=held)
    platform.jobs.announced(read)
    assert platform.jobs.get(job.id).signals[-1].turn is Turn.RUN_HELD
    again = platform.jobs.to_announce("", 9)
    platform.jobs.announced(again)
    assert not platform.jobs.get(job.id).signals


def test_what_follows_the_end_calls_no_webhook_once_more(platform: Platform) -> None:
    """The webhook's delivery may be deleted before a dataset folds the run: that makes no second delivery."""
    job = ended(platform, "http://gone.example/")
    platform.announcing().look()
    platform.deliveries.delete_of(job_ids=[job.id], limit=9)
    held = JobSignal(turn=Turn.RUN_HELD, at=platform.clock())
    FoldQueue(platform.database, platform.clock).done(job.id, signal=held)
    platform.announcing().look()
    assert platform.deliveries.page([{"job_id": job.id}], 9, None)[0] == []


def test_more_than_one_look_can_see_are_all_called(
    platform: Platform, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "USERS", 3)
    urls = [f"http://{number}.example/" for number in range(2 * CALLS)]
    for number, url in enumerate(urls):
        ended(platform, url, user_id=f"user-{number % 10}")
    call(world := Remembering())
    wait_for_calls(world, len(urls))
    assert sorted(world.urls()) == sorted(urls)


def test_a_user_with_more_jobs_than_one_look_takes_is_looked_at_again(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcing, "JOBS", 2)
    jobs = [ended(platform, f"http://{number}.example/") for number in range(5)]
    one = platform.announcing()
    while one.look():
        pass
    assert all(calls_of(platform, job) for job in jobs)


def test_what_had_no_room_is_called_as_soon_as_a_round_ends(platform: Platform, call: Call) -> None:
    def late(connection: socket.socket) -> None:
        time.sleep(0.5)
        answer()(connection)

    with Receiver(late) as receiver:
        jobs = [ended(platform, receiver.url(host=f"127.0.0.{number}")) for number in range(1, 3 * USER_CALLS)]
        call(WebhookCaller(LOOPBACK))
        for job in jobs:
            wait_until_over(platform, job)
        assert len(receiver.calls) == len(jobs)


def test_a_document_that_cannot_be_understood_keeps_no_other_waiting(platform: Platform, call: Call) -> None:
    broken = ended(platform, "http://a.example/")
    platform.database["jobs"].update_one({"_id": broken.id}, {"$set": {"status": "none of ours"}})
    unreadable = of_webhook(ended(platform), "http://c.example/", platform.clock())
    platform.deliveries.add([unreadable])
    platform.database["deliveries"].update_one({"_id": unreadable.id}, {"$set": {"calls": 1}})
    job, world = ended(platform, "http://b.example/"), Remembering()
    call(world)
    wait_until_over(platform, job)
    assert world.urls() == ["http://b.example/"]


def test_a_url_that_cannot_be_understood_keeps_no_other_waiting(platform: Platform, call: Call) -> None:
    job = ended(platform, "http://[bad", "http://b.example:x/", "none", user_id="a")
    with Receiver(answer()) as receiver:
        other = ended(platform, receiver.url(), user_id="b")
        call(WebhookCaller(LOOPBACK))
        wait_until_over(platform, other)
    assert len(wait_for_failures(platform, job, 1)) == 3


def test_a_caller_that_breaks_harms_no_other_call(platform: Platform, call: Call) -> None:
    class Breaking(Remembering):
        async def post(self, user_id: str, url: str, body: bytes, headers: Headers = ()) -> CallResult:
            if "a.example" in url:
                raise MemoryError
            return await super().post(user_id, url, body)

    job = ended(platform, "http://a.example/", "http://b.example/")
    call(Breaking())
    wait_for_failures(platform, job, 1)
    wait_until(lambda: platform.jobs.get(job.id).webhooks_delivered == ["http://b.example/"], what="the other call")


@pytest.mark.parametrize("count", [USER_CALLS, 50])
def test_slow_receivers_of_one_user_keep_nobody_elses_waiting(platform: Platform, call: Call, count: int) -> None:
    with Receiver(receivers.never) as slow, Receiver(answer()) as quick:
        for number in range(count):
            ended(platform, slow.url(host=f"127.0.1.{number}"), user_id="greedy")
        call(caller := WebhookCaller(LOOPBACK))
        wait_until(lambda: slow.open == USER_CALLS, what="all that one user may have")
        began = time.monotonic()
        for user in ("bob", "cy", "dee"):
            job = ended(platform, quick.url(f"/{user}"), user_id=user)
            call(caller)
            wait_until_over(platform, job)
        # no quick receiver had to wait until a slow call timed out
        assert time.monotonic() - began < webhook_caller.CALL_SECONDS
        assert (sorted(quick.paths()), slow.most_open) == (["/bob", "/cy", "/dee"], USER_CALLS)


def test_a_slow_host_is_left_room_for_others_who_call_it(platform: Platform, call: Call) -> None:
    with Receiver(receivers.never) as slow, Receiver(answer()) as quick:
        for _ in range(50):
            ended(platform, slow.url(), user_id="greedy")
        call(caller := WebhookCaller(LOOPBACK))
        wait_until(lambda: slow.open == HOST_CALLS // 2, what="half of what a host may have")
        # one job calls the same host, and one of the same user calls another host
        jobs = [ended(platform, quick.url(), user_id="bob"), ended(platform, quick.url(host="127.0.0.2"))]
        call(caller)
        for job in jobs:
            wait_until_over(platform, job)
        assert slow.most_open == HOST_CALLS // 2


def test_a_slow_receiver_with_many_calls_keeps_none_of_its_users_others_waiting(
    platform: Platform, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "PAGE", 20)
    with Receiver(receivers.never) as slow, Receiver(answer()) as quick:
        for _ in range(60):
            ended(platform, slow.url(), user_id="ada")
        call(caller := WebhookCaller(LOOPBACK))
        wait_until(lambda: slow.open == HOST_CALLS // 2, what="half of what a host may have")
        platform.endpoints.make("ada", quick.url(host="127.0.0.2"))
        ended(platform, user_id="ada")
        began = time.monotonic()
        call(caller)
        wait_until(lambda: quick.calls, what="the call of the other receiver")
        assert time.monotonic() - began < webhook_caller.CALL_SECONDS


@pytest.mark.parametrize("greedy", [1, 4, 8, CALLS - 1])
def test_there_is_room_for_one_more_user_however_many_are_greedy(greedy: int) -> None:
    shares, users = Shares(), [f"user-{number}" for number in range(greedy)]
    taken = 0
    while wanting := [user for user in users if shares.admits(user, f"{user}.example")]:
        for user in wanting:
            if shares.admits(user, f"{user}.example"):
                shares.take(user, f"{user}.example")
                taken += 1
    assert taken >= min(CALLS // 2, greedy * HOST_CALLS // 2)
    assert shares.admits("newcomer", "somewhere.example")


def test_there_is_room_for_another_host_of_a_user_however_many_are_slow() -> None:
    shares = Shares()
    for host in ("a.example", "b.example", "c.example"):
        while shares.admits("ada", host):
            shares.take("ada", host)
    assert shares.admits("ada", "d.example")


def test_messages_by_apprise_never_wait_for_a_process_behind_those_of_another_user() -> None:
    shares, taken = Shares(), 0
    while shares.admits("greedy", SEALED_HOST):
        shares.take("greedy", SEALED_HOST)
        taken += 1
    # half of the processes are left for other users
    assert (taken, shares.admits("bob", SEALED_HOST)) == (PROCESSES // 2, True)
    assert shares.admits("greedy", "elsewhere.example")


def test_what_is_given_back_is_free_again() -> None:
    shares = Shares()
    for _ in range(3):
        shares.take("ada", "a.example")
    for _ in range(3):
        shares.give_back("ada", "a.example")
    assert vars(shares) == vars(Shares())


def test_a_worker_stops_at_once_with_calls_under_way_and_they_are_made_again(
    platform: Platform, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a long time to wait for the loop, to see that closing does not need it
    monkeypatch.setattr(delivering, "PARTING", 60)
    with Receiver(receivers.never) as slow:
        job = ended(platform, slow.url())
        stopped = call(WebhookCaller(LOOPBACK))
        wait_until(lambda: slow.open, what="a call")
        began = time.monotonic()
        stopped.close()
        assert time.monotonic() - began < webhook_caller.CALL_SECONDS
        # a task that was still under way asks the closed worker to look
        stopped.look()
        slow.behaviour = answer()
        platform.ahead += LEASE
        call(WebhookCaller(LOOPBACK))
        wait_until_over(platform, job)
        assert len(slow.calls) == 2


def test_calls_of_a_user_with_a_secret_are_signed_with_it(platform: Platform, call: Call) -> None:
    before = ended(platform, "http://a.example/")
    call(world := Remembering())
    wait_until_over(platform, before)
    assert world.headers[0].keys() == {"webhook-id", "webhook-timestamp"}
    secret = platform.webhook_secrets.renew(before.user_id, timedelta(hours=1)).secret
    job = ended(platform, "http://b.example/")
    call(world)
    wait_until_over(platform, job)
    assert world.headers[1]["webhook-id"] == f"msg_{job.id}"
    assert Webhook(secret).verify(world.calls[1][1], at_any_time(secret, world.headers[1], world.calls[1][1]))


def at_any_time(secret: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
    """The headers, signed anew for the present time, because a receiver refuses old calls. Their own signature is
    checked first.
    """
    sent = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
    assert headers["webhook-signature"] == Webhook(secret).sign(headers["webhook-id"], sent, body.decode())
    return dict(signed_headers(headers["webhook-id"], datetime.now(UTC), body, [secret]))


def test_a_call_that_cannot_be_signed_is_not_made(platform: Platform, call: Call) -> None:
    job = make_job()
    platform.webhook_secrets.renew(job.user_id, timedelta())
    platform.keys = ["another" * 6]
    job = ended(platform, "http://a.example/")
    call(world := Remembering())
    wait_for_failures(platform, job, 1)
    assert world.calls == []
    assert "webhook secret of" in (platform.jobs.get(job.id).webhook_message or "")
