"""A project deployed straight to a node, as `scrapyd-deploy` does it, and crawled with through the gateway."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from eggs import egg, source
from sites.server import Site, links
from stack import Stack

pytestmark = [pytest.mark.stack]

SPIDERS = """
import scrapy


class Books(scrapy.Spider):
    "Follows every link of a site."

    name = "books"
    custom_settings = {"FEEDS": {"books.csv": {"format": "csv"}}}

    def __init__(self, category):
        super().__init__()
        self.category = category

    def parse(self, response):
        self.logger.info("reads %s", response.url)
        yield {"category": self.category, "url": response.url}
        yield from response.follow_all(css="a")


class Own(scrapy.Spider):
    name = "own"
    allowed_domains = ["example.com"]
"""


@pytest.fixture(scope="module")
def deployed(stack: Stack) -> dict[str, Any]:
    """As `GET /spiders` shows it."""
    ready = stack.ready
    answer = httpx2.post(
        f"{ready['scrapyd_url']}/addversion.json",
        data={"project": "bookshop", "version": "1.0"},
        files={"egg": ("project.egg", egg(source("bookshop", spiders=SPIDERS)))},
        auth=(ready["scrapyd_username"], ready["scrapyd_password"]),
        timeout=120,
        trust_env=False,
    ).json()
    assert answer["spiders"] == 2, answer
    listed: dict[str, Any] = stack.http.get(f"{stack.url}/spiders?project=bookshop").json()
    assert len(listed["spiders"]) == 2
    return listed


def refusal(stack: Stack, **fields: Any) -> str:
    body = {"user_id": "tester", "project": "bookshop", "start_urls": ["https://example.com/"], **fields}
    answer = stack.http.post(f"{stack.url}/crawl", json=body)
    assert answer.status_code == 422, answer.text
    return answer.text


def test_a_deployed_spider_has_items_log_outcome_and_limits(stack: Stack, site: Site, deployed: Any) -> None:
    site.pages |= {"/": links("/a", "/b"), "/a": links("/deeper"), "/b": "", "/deeper": ""}
    job_id = stack.crawl(f"{site.url}/", project="bookshop", spider="books", params={"category": "new"}, depth=1)
    end = stack.wait_final(job_id)
    assert end["status"] == "finished"
    # the feed that its settings ask for
    listed = stack.http.get(f"{stack.url}/jobs/{job_id}/files").json()
    (feed,) = listed["files"]
    assert (feed["name"], feed["type"], listed["pending"]) == ("books.csv", "text/csv", False)
    assert sorted(stack.http.get(stack.url + feed["url"]).text.split()[1:]) == sorted(
        f"new,{site.url}{path}" for path in ("/", "/a", "/b")
    )
    assert end["version"] == "1.0"
    assert sorted(item["url"].removeprefix(site.url) for item in stack.items(job_id)) == ["/", "/a", "/b"]
    assert {item["category"] for item in stack.items(job_id)} == {"new"}
    assert b"reads " in stack.log(job_id)
    assert stack.log(job_id) == stack.log_on_node(job_id)
    assert site.hits("/deeper") == 0
    assert (stack.home / f"node/outbox/{job_id}-1/files/books.csv").read_text().count("\n") == 4


def test_what_cannot_be_run_is_refused_with_what_there_is(stack: Stack, deployed: Any) -> None:
    assert "books" in refusal(stack, spider="boks")
    assert "1.0" in refusal(stack, spider="books", version="2.0")
    assert "example.com" in refusal(stack, spider="own", start_urls=["https://example.org/"])
    assert "strings" in refusal(stack, spider="books", params={"category": 1})


def test_a_constructor_that_lacks_an_argument_says_so_in_the_log(stack: Stack, site: Site, deployed: Any) -> None:
    job_id = stack.crawl(f"{site.url}/", project="bookshop", spider="books", max_retries=0)
    assert stack.wait_final(job_id)["status"] == "error"
    assert b"missing 1 required positional argument: 'category'" in stack.log(job_id)
