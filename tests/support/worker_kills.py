"""The worker is killed again and again while crawls come in."""

from __future__ import annotations

import random
import sys
import time

from crawl_verifier import CrawlVerifier
from forms import full_or_short
from stack import Stack

#: Crawls that are requested before each kill, so that some wait and some run when it comes.
LOAD = full_or_short(12, 6)
#: Most seconds between the last request and the kill: long enough for some crawls to be half dispatched.
PAUSE = 0.3


def kill_workers(stack: Stack, verifier: CrawlVerifier, kills: int) -> float:
    """Returns the longest time, in seconds, from a kill to the first page of a crawl that had not begun before it."""
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed of the kills: {seed}\n")  # shown if the test fails
    chance = random.Random(seed)
    slowest = 0.0
    for _ in range(kills):
        crawls = verifier.begin(LOAD, at_once=4)
        time.sleep(chance.uniform(0, PAUSE))  # so that the kill comes at any moment
        killed = stack.ready["pids"]["worker"]
        stack.kill("worker")
        died = time.monotonic()
        stack.wait_for_another("worker", killed)
        if waiting := [crawl for crawl in crawls if verifier.first_visit([crawl]) is None]:
            slowest = max(slowest, verifier.wait_for_visit(waiting, after=died))
    return slowest
