"""Spiders that people have, run as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from eggs import egg, source
from sites.server import Site

from .conftest import Crawl, EggNode

CRAWLS: dict[str, dict[str, Any]] = {
    "argument": {"params": {"category": "books"}},
    "strict": {"params": {"category": "books", "note": "kept"}, "depth": 0},
    "listed": {},
    "hard_coded": {},
    "former": {},
    "elsewhere": {},
    "knows": {"start_urls": []},
}


@pytest.fixture(scope="module")
def crawl(node: EggNode, site: Site) -> Callable[[str], Crawl]:
    """A spider's crawl of the site; all of them are under way from the beginning."""
    node.deploy_folder("plain")
    crawls = CRAWLS | {"knows": {**CRAWLS["knows"], "params": {"at": site.url}}}
    attempts = {
        name: node.run(name, project="plain", version="1.0", **{"start_urls": [site.url], **fields})
        for name, fields in crawls.items()
    }
    return lambda name: node.ended(attempts[name])


def paths(crawl: Crawl, site: Site) -> list[str]:
    return sorted(item["url"].removeprefix(site.url) or "/" for item in crawl.items if "url" in item)


def test_an_argument_reaches_the_constructor_which_may_decide_where_to_start(
    crawl: Callable[[str], Crawl], site: Site
) -> None:
    assert paths(crawl("argument"), site) == ["/books"]


def test_a_constructor_is_given_what_it_takes_and_the_rest_become_attributes(
    crawl: Callable[[str], Crawl], site: Site
) -> None:
    strict = crawl("strict")
    assert strict.items[0] == {"category": "books", "depth": 0, "note": "kept"}
    assert paths(strict, site) == ["/"]


def test_start_urls_of_the_request_replace_those_of_the_class(crawl: Callable[[str], Crawl], site: Site) -> None:
    assert paths(crawl("listed"), site) == ["/", "/a"], "its own DEPTH_LIMIT is 1"


def test_without_start_urls_in_the_request_those_of_the_spider_stand(
    crawl: Callable[[str], Crawl], site: Site
) -> None:
    assert paths(crawl("knows"), site) == ["/a", "/b"]


def test_a_spider_that_starts_by_itself_does(crawl: Callable[[str], Crawl], site: Site) -> None:
    assert paths(crawl("hard_coded"), site) == ["/hard-coded"]


def test_a_spider_of_the_time_of_start_requests_is_started_as_then(crawl: Callable[[str], Crawl], site: Site) -> None:
    assert paths(crawl("former"), site) == ["/former"]


def test_a_spider_keeps_to_its_domains_after_the_start_urls(crawl: Callable[[str], Crawl], site: Site) -> None:
    assert paths(crawl("elsewhere"), site) == ["/"]


def test_each_ends_with_a_report_of_its_pages(crawl: Callable[[str], Crawl]) -> None:
    for name in CRAWLS:
        ended = crawl(name)
        assert ended.exit["exit_code"] == 0, ended.log
        assert ended.exit["report"]["finish_reason"] == "finished"
        assert "DEBUG" not in ended.log, "the node's level is info"
        progress = ended.exit["report"]["progress"]
        assert progress["completed_pages"] >= 1
        assert progress["items_count"] == len(ended.items)


def test_the_catalog_tells_what_there_is_to_know(crawl: Callable[[str], Crawl], node: EggNode) -> None:
    infos = {info["name"]: info for info in node.catalog("plain")}
    assert sorted(infos) == sorted(CRAWLS)
    assert {info["version"] for info in infos.values()} == {"1.0"}
    assert all(info["latest"] and info["params_schema"] is None for info in infos.values())
    assert infos["argument"]["description"] == "Crawls one category."
    assert infos["elsewhere"]["allowed_domains"] == ["example.com"]
    assert {name for name, info in infos.items() if info["own_start"]} == {"argument", "hard_coded", "former"}
    # the others read what a crawl names
    assert {name for name, info in infos.items() if not info["needs_urls"]} == {"listed", "knows"}


def test_a_plain_scrapyd_job_runs_as_ever_with_our_add_on(
    crawl: Callable[[str], Crawl], node: EggNode, site: Site
) -> None:
    form = {"project": "plain", "spider": "argument", "jobid": "plain-job", "category": "b"}
    form |= {"start_urls": "never", "setting": 'ADDONS={"scrapy.no.such.Addon": null}'}
    assert node.ask("schedule", **form)["status"] == "ok"
    log = node.home / "node/logs/plain/argument/plain-job.log"
    node.wait_for(lambda: log.exists() and "Spider closed" in log.read_text())
    assert "DiscoveryBot" in log.read_text()
    assert "RemoteControl" not in log.read_text()


#: As `scrapy startproject` wrote it until 2.13, and as the tutorials for databases have it.
OF_SCRAPY_1 = """
class Marks:
    def process_spider_output(self, response, result, spider):
        for one in result:
            yield {**one, "spider": spider.name}

class Saves:
    def __init__(self, name):
        self.name = name

    @classmethod
    def from_settings(cls, settings):
        return cls(settings["BOT_NAME"])

    def process_item(self, item, spider):
        return {**item, "bot": self.name}
"""
OF_SCRAPY_1_SETTINGS = """
SPIDER_MODULES = ['early.spiders']
SPIDER_MIDDLEWARES = {'early.parts.Marks': 543}
ITEM_PIPELINES = {'early.parts.Saves': 300}
BOT_NAME = 'early bot'
"""
OF_SCRAPY_1_SPIDER = """
from scrapy.spider import BaseSpider
from scrapy.conf import settings
from scrapy.loader.processors import TakeFirst

class Early(BaseSpider):
    name = "early"

    def parse(self, response):
        yield {"set": settings["BOT_NAME"], "first": TakeFirst()(["a", "b"])}
"""


def test_a_project_of_scrapy_1_finds_what_it_knows_and_is_called_as_it_expects(node: EggNode, site: Site) -> None:
    parts = {"settings": OF_SCRAPY_1_SETTINGS, "spiders": OF_SCRAPY_1_SPIDER, "parts": OF_SCRAPY_1}
    answer = node.deploy("early", "1.0", egg(source("early", **parts)))
    assert answer["status"] == "ok", answer
    ended = node.ended(node.run("early", project="early", start_urls=[site.url]))
    assert ended.items == [{"set": "early bot", "first": "a", "spider": "early", "bot": "early bot"}], ended.log
