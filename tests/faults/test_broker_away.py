"""The broker is away while crawls are asked for: all are accepted, and run, without it."""

from __future__ import annotations

import time

import pytest
from breakable import Platform
from crawl_verifier import CrawlVerifier
from fault_table import record
from forms import full_or_short

pytestmark = [pytest.mark.stack, pytest.mark.timeout(420)]

SECONDS = full_or_short(60, 5)
CRAWLS = full_or_short(500, 8)
#: Seconds within which all are to be accepted, and within which one alone is to begin.
PROMPT, BEGUN_WITHIN = 60, full_or_short(5.0, 20.0)


def test_crawls_run_without_a_broker(platform: Platform, verifier: CrawlVerifier) -> None:
    with platform.broker.away():
        began = time.monotonic()
        accepted = verifier.begin(CRAWLS, at_once=4)
        assert time.monotonic() - began < PROMPT, "that the broker was away held them up"
        assert not verifier.client.refused
        begun = verifier.wait_for_visit(accepted, after=began)
        verifier.wait(timeout=300)
        # how long it is away is what is tested
        time.sleep(max(0.0, began + SECONDS - time.monotonic()))
        late = verifier.begun()
    verifier.wait()
    record(
        "Broker away while crawls are accepted", f"killed for {SECONDS} s, {CRAWLS} crawls",
        recovered=max(begun, late), **verifier.verdict(),
    )  # fmt: skip
    assert late < BEGUN_WITHIN
