"""Endpoints that refuse, drip, redirect, ask for a pause or are gone, with workers killed in the middle: each is told
of everything at least once, under ids that stay, and nobody else notices.
"""

from __future__ import annotations

import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, NamedTuple

import pymongo
import pytest
from breakable import Platform
from crawl_verifier import CrawlVerifier
from fault_table import record
from forms import full_or_short
from jobs import make_job
from receivers import WELL, Behaviour, Receiver, answer, drip
from stack import Stack, wait_until

from gateway.clock import utc_now
from gateway.jobs.job import JobSignal, JobStatus, Turn
from gateway.signals.delivering import LEASE_SLACK
from gateway.signals.webhook_caller import CALL_SECONDS

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1200)]

#: Jobs that end at once, each of which is announced to every endpoint.
JOBS = full_or_short(2000, 40)
#: Kills of the worker meanwhile, and the seconds between two of them.
KILLS, PAUSE = full_or_short(20, 1), 3.0
#: How often others' crawls begin, before and meanwhile.
OTHERS = full_or_short(9, 3)
#: Seconds by which they may begin later meanwhile. In the short form other tests keep the machine busy; it is less
#: than a call to a receiver that drips takes.
LATER = full_or_short(1.0, 8.0)
USER = "anne"
#: What each receiver does until it is mended.
FAULTS: dict[str, Behaviour] = {
    "takes all": WELL,
    "refuses": answer(500),
    "drips": drip(5),
    "redirects": answer(302, "Location: /elsewhere"),
    "asks for a pause": answer(429, "Retry-After: 2"),
}


class Told(NamedTuple):
    endpoint_id: str
    receiver: Receiver

    @property
    def taken(self) -> set[str]:
        """The ids of the calls that it has answered well."""
        return {call.headers["webhook-id"] for call in list(self.receiver.taken)}


@pytest.fixture
def database(platform: Platform) -> Iterator[Any]:
    client = pymongo.MongoClient[dict[str, Any]](platform.stack.environment()["MONGO_URI"], tz_aware=True)
    yield client.get_default_database()
    client.close()


def test_each_receiver_is_told_of_everything_whoever_fails(
    platform: Platform, verifier: CrawlVerifier, database: Any
) -> None:
    stack, chance = platform.stack, random.Random(7)
    alone = statistics.median(verifier.begun(user_id="other") for _ in range(OTHERS))
    with ExitStack() as ends:
        told = [endpoint(stack, ends, number, what) for number, what in enumerate(FAULTS.values(), 1)]
        end_jobs(database)
        wait_until(lambda: deliveries(database) == JOBS * len(told), what="all deliveries", timeout=120)
        beside = []
        for _ in range(KILLS):
            time.sleep(chance.uniform(0, PAUSE))
            kill_worker(stack)
            if len(beside) < OTHERS:
                beside.append(verifier.begun(user_id="other"))
        for one in told:
            one.receiver.behaviour = WELL
        mended = time.monotonic()
        wait_until(lambda: hurry(database) == 0, what="the last delivery", timeout=900)
        recovered = time.monotonic() - mended
        made = {one: ids_for(database, one.endpoint_id) for one in told}
    assert {one.endpoint_id: len(ids) for one, ids in made.items()} == {one.endpoint_id: JOBS for one in told}
    lost = sum(len(ids - one.taken) for one, ids in made.items())
    assert not any(one.taken - ids for one, ids in made.items()), "an id that no delivery has"
    assert lost == 0
    assert states(database) == {"delivered": JOBS * len(told)}
    assert statistics.median(beside) <= max(2 * alone, alone + LATER), (alone, beside)
    injected = f"{JOBS * len(told)} to five endpoints of which four fail, {KILLS} × SIGKILL of the worker"
    record("Deliveries to endpoints", injected, lost=lost, doubled=0, recovered=recovered)


def endpoint(stack: Stack, ends: ExitStack, number: int, behaviour: Behaviour) -> Told:
    receiver = ends.enter_context(Receiver(behaviour))
    # a host of its own, so that none has the others' share
    body = {"url": receiver.url(host=f"127.0.3.{number}"), "user_id": USER, "events": ["job.finished"]}
    made = stack.http.post(f"{stack.url}/endpoints", json=body).raise_for_status().json()
    return Told(made["endpoint_id"], receiver)


def end_jobs(database: Any) -> None:
    """As workers write it: ended, and to be announced."""
    now = utc_now()
    signalled = {"signals": [JobSignal(turn=Turn.ENDED, at=now, attempt=1)], "signals_due": now}
    over = {"status": JobStatus.FINISHED, "finished_at": now, "settled": True, "live_key": None, **signalled}
    database["jobs"].insert_many([make_job(user_id=USER, **over).to_document() for _ in range(JOBS)])


def kill_worker(stack: Stack) -> None:
    pid = stack.ready["pids"]["worker"]
    stack.kill("worker", signal.SIGKILL)
    stack.wait_for_another("worker", pid)


def deliveries(database: Any, **fields: Any) -> int:
    return int(database["deliveries"].count_documents({"user_id": USER, **fields}))


def ids_for(database: Any, endpoint_id: str) -> set[str]:
    return {one["message_id"] for one in database["deliveries"].find({"endpoint_id": endpoint_id}, {"message_id": 1})}


def hurry(database: Any) -> int:
    """Let the time pass until tries that are minutes or hours ahead; how many deliveries are left. What is due within
    a lease's time may be under way.
    """
    now = utc_now()
    ahead = {"user_id": USER, "due_at": {"$gt": now + timedelta(seconds=CALL_SECONDS + LEASE_SLACK + 1)}}
    database["deliveries"].update_many(ahead, {"$set": {"due_at": now}})
    return deliveries(database, state="pending")


def states(database: Any) -> Counter[str]:
    return Counter(one["state"] for one in database["deliveries"].find({"user_id": USER}, {"state": 1}))
