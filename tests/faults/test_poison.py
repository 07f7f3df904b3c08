"""Jobs that kill whoever runs them: tried so often and no more, nobody else is harmed, and they can be run again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import httpx2
import pytest
from breakable import Platform
from crawl_verifier import CrawlVerifier
from eggs import egg, source
from fault_table import record
from forms import full_or_short, in_full
from sites.server import Site, links
from stack import Stack, wait_until

from gateway.jobs.job import MOST_SPARED

pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(300),
    in_full("a job that kills itself in services/test_node_health.py"),
]

RETRIES = full_or_short(3, 2)
NEIGHBOURS = 4
#: Of each, so that it takes as long as the poison.
PAGES = 20
PATIENCE = 120.0

SPIDERS = """
import os
import signal

import scrapy


class Drinker(scrapy.Spider):
    "Does what the page says."

    name = "drinker"

    def parse(self, response):
        if "scrapyd" in response.text:
            os.kill(os.getppid(), signal.SIGKILL)
        if "poison" in response.text:
            os.kill(os.getpid(), signal.SIGKILL)
        yield {"text": response.text}
"""
#: What the page of each says. The second one takes its Scrapyd along.
POISONS = {"/cup/": "poison", "/barrel/": "poison for scrapyd"}


@pytest.fixture(scope="module")
def stack(platform: Platform) -> Stack:
    stack = platform.stack
    ready = stack.ready
    answer = httpx2.post(
        f"{ready['scrapyd_url']}/addversion.json",
        data={"project": "tavern", "version": "1.0"},
        files={"egg": ("project.egg", egg(source("tavern", spiders=SPIDERS)))},
        auth=(ready["scrapyd_username"], ready["scrapyd_password"]),
        timeout=60,
        trust_env=False,
    ).json()
    assert answer["status"] == "ok", answer
    wait_until(lambda: stack.http.get(f"{stack.url}/spiders?project=tavern").json()["spiders"], what="the spider")
    return stack


@pytest.fixture
def bystanders(stack: Stack) -> Iterator[CrawlVerifier]:
    """Crawls on the same node, of one page a second each."""
    with Site(delay=1) as site, CrawlVerifier(stack, site, pages=PAGES) as verifier:
        for _ in range(NEIGHBOURS):
            crawl, start = verifier.prepare()
            site.pages |= {here: links(there) for here, there in pairwise(crawl.paths)}
            verifier.accept(crawl, stack.crawl(start))
        yield verifier


def test_a_job_that_kills_is_tried_so_often_and_no_more(stack: Stack, bystanders: CrawlVerifier) -> None:
    site = bystanders.site
    site.pages |= POISONS
    for neighbour in bystanders.crawls:
        bystanders.wait_for_visit([neighbour], after=0)
    jobs = {page: drink(stack, site.url + page) for page in POISONS}
    tries: dict[str, int] = {}
    for page, job in jobs.items():
        ended, tries[page] = stack.wait_final(job, timeout=PATIENCE), site.hits(page)
        assert ended["status"] == "error"
        # what is lost with its Scrapyd costs no retry for a while: also the other one's attempts
        assert 1 + RETRIES <= tries[page] <= 1 + RETRIES + MOST_SPARED["lost"]
        assert [attempt["status"] for attempt in stack.job(job)["attempts"]] == ["error"] * tries[page]
    assert dead_letters(stack) >= set(jobs.values())
    bystanders.wait()
    record(
        "Jobs that kill their process, or Scrapyd and then it", f"2 jobs, {sum(tries.values())} times in all",
        recovered=None, **bystanders.verdict(),
    )  # fmt: skip
    site.pages |= dict.fromkeys(POISONS, "water")
    for page, job in jobs.items():
        again = stack.http.post(f"{stack.url}/dead-letters/{job}/requeue").raise_for_status().json()["job_id"]
        assert stack.wait_final(again, timeout=PATIENCE)["status"] == "finished"
        assert (stack.job(again)["retry_of"], site.hits(page)) == (job, tries[page] + 1)
    assert not dead_letters(stack) & set(jobs.values())


def drink(stack: Stack, url: str) -> str:
    return stack.crawl(url, project="tavern", spider="drinker", max_retries=RETRIES, ignore_cache=True)


def dead_letters(stack: Stack) -> set[str]:
    letters = stack.http.get(f"{stack.url}/dead-letters").raise_for_status().json()["dead_letters"]
    return {letter["id"] for letter in letters}
