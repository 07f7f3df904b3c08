"""The negative control of all that the verifier says: it sees a loss and a double where there is one."""

from __future__ import annotations

import httpx2
import pytest
from breakable import Platform
from crawl_verifier import CrawlVerifier
from sites.server import links

pytestmark = [pytest.mark.stack]


def test_a_page_that_was_fetched_twice_and_one_that_was_not_are_seen(
    platform: Platform, verifier: CrawlVerifier
) -> None:
    crawl, start = verifier.prepare()
    verifier.site.pages[crawl.paths[0]] = links(crawl.paths[1])
    verifier.accept(crawl, platform.stack.crawl(start))
    [twice, *_] = verifier.begin(3)
    httpx2.get(f"{verifier.site.url}{twice.paths[1]}")
    verifier.wait()
    assert verifier.verdict() == {"lost": 1, "doubled": 1}


def test_an_end_that_is_not_the_expected_one_is_a_loss(verifier: CrawlVerifier) -> None:
    verifier.begin(1, expected="error")
    verifier.begin(1)
    verifier.wait()
    assert verifier.verdict() == {"lost": 1, "doubled": 0}
