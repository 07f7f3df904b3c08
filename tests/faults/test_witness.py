"""The negative control of all that the witness says: it sees a loss and a double where there is one."""

from __future__ import annotations

import httpx
import pytest
from breakable import Platform
from sites.server import links
from witness import Witness

pytestmark = [pytest.mark.stack]


def test_a_page_that_was_fetched_twice_and_one_that_was_not_are_seen(platform: Platform, witness: Witness) -> None:
    crawl, start = witness.prepare()
    witness.site.pages[crawl.paths[0]] = links(crawl.paths[1])
    witness.accept(crawl, platform.stack.crawl(start))
    [twice, *_] = witness.begin(3)
    httpx.get(f"{witness.site.url}{twice.paths[1]}")
    witness.wait()
    assert witness.verdict() == {"lost": 1, "doubled": 1}


def test_an_end_that_is_not_the_expected_one_is_a_loss(witness: Witness) -> None:
    witness.begin(1, expected="error")
    witness.begin(1)
    witness.wait()
    assert witness.verdict() == {"lost": 1, "doubled": 0}
