"""The broker is away while crawls are asked for: all are accepted, and all run once it is back."""

from __future__ import annotations

import time

import pytest
from breakable import Platform
from crawl_verifier import CrawlVerifier
from fault_table import full_or_short, record

pytestmark = [pytest.mark.stack, pytest.mark.timeout(420)]

SECONDS = full_or_short(60, 5)
CRAWLS = full_or_short(500, 20)
#: Seconds within which all are to be accepted.
PROMPT = 60


def test_crawls_that_are_accepted_without_a_broker_run_once_it_is_back(
    platform: Platform, verifier: CrawlVerifier
) -> None:
    with platform.broker.away():
        began = time.monotonic()
        accepted = verifier.begin(CRAWLS, at_once=4)
        assert time.monotonic() - began < PROMPT, "that the broker was away held them up"
        assert not verifier.client.refused
        # how long it is away is what is tested
        time.sleep(max(0.0, began + SECONDS - time.monotonic()))
        back = time.monotonic()
    recovered = verifier.wait_for_visit(accepted, after=back)
    verifier.wait(timeout=300)
    record(
        "Broker away while crawls are accepted", f"killed for {SECONDS} s, {CRAWLS} crawls",
        recovered=recovered, **verifier.verdict(),
    )  # fmt: skip
