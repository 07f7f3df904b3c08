"""Receivers of one user's webhooks that answer a byte every five seconds: nobody else notices, and all are told."""

from __future__ import annotations

import signal
import time
from collections import Counter

import psutil
import pytest
from breakable import Platform
from crawl_verifier import CrawlVerifier
from fault_table import record
from forms import FULL, full_or_short, in_full
from receivers import Receiver, answer, drip
from stack import Stack, wait_until

from gateway.signals.delivering import USER_CALLS

pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(420),
    in_full("the same of the caller in services/test_delivering.py"),
]

#: Crawls of other users meanwhile.
OTHERS = full_or_short(40, 6)
#: Receivers that are slow: as many as are called at once, and more.
SLOW = (USER_CALLS, 50) if FULL else (USER_CALLS + 4,)
#: Kills of the worker with calls under way, which are repeated once their lease has lapsed.
KILLS = full_or_short(1, 0)
#: Seconds within which such a crawl is to start; and its receiver is told after its end.
PROMPT = full_or_short(5.0, 20.0)
UNTROUBLED = "every webhook is called when it is due"


@pytest.mark.parametrize("count", SLOW)
def test_slow_receivers_of_one_user_hold_up_nobody_else(
    platform: Platform, verifier: CrawlVerifier, count: int
) -> None:
    with Receiver(drip(5)) as slow, Receiver(answer()) as quick:
        for number in range(count):
            hook = slow.url(f"/{number}", host=f"127.0.1.{number}")
            verifier.begin(1, user_id="greedy", webhook_url=hook)
        wait_until(lambda: slow.open >= min(count, USER_CALLS), what="the slow calls")
        busy = 0
        for number in range(OTHERS):
            check_one_of_another_user(verifier, quick, f"/{number}")
            busy += bool(slow.open)  # not always: a call ends after its time, and is repeated later
        assert busy >= OTHERS // 2, "the slow ones were not slow"
        wait_until(lambda: platform.stack.check("webhooks")["message"] != UNTROUBLED, what="a word in /health")
        assert slow.most_open == USER_CALLS
        for _ in range(KILLS):
            end_worker(platform.stack, signal.SIGKILL)
        slow.behaviour, mended = answer(), time.monotonic()
        wait_until(lambda: told(slow, mended).keys() >= {f"/{number}" for number in range(count)}, what="every call",
                   timeout=240)  # fmt: skip
        recovered = time.monotonic() - mended
        verifier.wait()
        # also those that answered are called no more
        wait_until(lambda: platform.stack.check("webhooks")["message"] == UNTROUBLED, what="the last record")
        verdict = verifier.verdict()
        verdict["doubled"] += sum(calls - 1 for calls in told(slow, mended).values())
        verdict["doubled"] += len(quick.calls) - OTHERS
    injected = f"{count} that send a byte every 5 s, {OTHERS} crawls of others" + ", a SIGKILL of the worker" * KILLS
    record("Slow webhook receivers of one user", injected, recovered=recovered, **verdict)


def test_a_worker_with_calls_under_way_stops_at_once(platform: Platform, verifier: CrawlVerifier) -> None:
    with Receiver(drip(5)) as slow:
        for number in range(USER_CALLS):
            hook = slow.url(f"/{number}", host=f"127.0.2.{number}")
            verifier.begin(1, user_id="greedy", webhook_url=hook)
        wait_until(lambda: slow.open == USER_CALLS, what="the slow calls")
        assert end_worker(platform.stack, signal.SIGTERM) < PROMPT


def end_worker(stack: Stack, signum: int) -> float:
    """How long it takes, in seconds. There is another one afterwards."""
    worker = psutil.Process(stack.ready["pids"]["worker"])
    began = time.monotonic()
    worker.send_signal(signum)
    wait_until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, what="its end")
    took = time.monotonic() - began
    stack.wait_for_another("worker", worker.pid)
    return took


def check_one_of_another_user(verifier: CrawlVerifier, receiver: Receiver, path: str) -> None:
    asked = time.monotonic()
    crawls = verifier.begin(1, user_id=f"other{path[1:]}", webhook_url=receiver.url(path))
    assert verifier.wait_for_visit(crawls, after=asked) < PROMPT
    verifier.stack.wait_final(verifier.jobs[crawls[0].number])
    ended = time.monotonic()
    wait_until(lambda: path in receiver.paths(), what=f"the call of {path}")
    assert time.monotonic() - ended < PROMPT


def told(receiver: Receiver, since: float) -> Counter[str]:
    """The calls that were answered, by their paths."""
    return Counter(call.path for call in list(receiver.calls) if call.at > since)
