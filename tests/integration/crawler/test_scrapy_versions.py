"""A whole crawl in a project's own Python, which has Scrapy and nothing else: today's Scrapy, and the oldest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sites.server import Reply, Site, links

from .conftest import Crawl, ProjectPython, Start
from .test_politeness import wait_until

WALK = Path(__file__).parent / "walk"
TREE = {"/": links("/a", "/b", "/gone", "/slow"), "/a": links("/b"), "/b": links(), "/slow": links()}


#: The project's pipeline is written for today's Scrapy.
PLAIN: dict[str, Any] = {"ITEM_PIPELINES": {}}


@pytest.fixture(params=["oldest", "newest"])
def python(request: pytest.FixtureRequest) -> ProjectPython:
    python: ProjectPython = request.getfixturevalue(request.param)
    return python


@pytest.fixture
def crawl(start: Start, python: ProjectPython) -> Callable[..., Crawl]:
    return lambda *args, **spec: start(*args, cwd=WALK, python=python, settings=PLAIN, **spec).wait()


def test_it_has_the_private_names_that_crawls_need(python: ProjectPython) -> None:
    code = "from crawler.private_names import refuse_without_private_names as look; look()"
    env = {**os.environ, "PYTHONPATH": str(python.path)}
    ran = subprocess.run([*python.command, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_a_crawl_leaves_all_that_the_platform_reads(crawl: Callable[..., Crawl]) -> None:
    with Site(TREE) as site:
        done = crawl("plain", site.url)
        assert sorted(site.paths()) == ["/", "/a", "/b", "/gone", "/slow"]
    assert done.exit_code == 0, done.log
    assert done.report["finish_reason"] == "finished"
    assert len(done.items) == done.progress["items_count"] == 5
    assert done.progress["completed_pages"] == done.progress["requested_pages"] == 5
    assert done.progress["errors_count"] == 0
    assert json.loads((done.folder / "progress.json").read_bytes())["items_count"] == 5
    assert "Z [scrapy.core.engine] INFO: Spider opened" in done.log
    assert "Traceback" not in done.log
    assert not [line for line in done.log.splitlines() if "Deprecat" in line and "/crawler/" in line]


def test_a_failure_is_told_in_the_same_words(crawl: Callable[..., Crawl]) -> None:
    with Site() as gone:
        pass
    with Site({"/": links(), "/broken": Reply(status=503)}) as site:
        done = crawl("plain", f"{site.url}/broken", gone.url, "http://nosuchhost.invalid/")
    assert {error["reason"] for error in done.report["errors"]} == {
        "HTTP 503 Service Unavailable",
        "the connection was refused",
        "the host name could not be resolved",
    }
    assert done.progress["errors_count"] == 3


def test_limits_hold(crawl: Callable[..., Crawl]) -> None:
    pages = {"/": links(*(f"/{number}" for number in range(20)))}
    with Site(pages) as site:
        few_pages = crawl("plain", site.url, max_pages=4)
        assert len(site.paths()) == 4
        few_items = crawl("plain", site.url, max_items=3)
        shallow = crawl("plain", site.url, depth=0)
    assert few_pages.report["finish_reason"] == "closespider_pagecount"
    assert few_items.report["finish_reason"] == "closespider_itemcount"
    assert len(few_items.items) == 3
    assert shallow.progress["completed_pages"] == 1


def test_a_crawl_is_fetched_as_it_was_ordered(crawl: Callable[..., Crawl]) -> None:
    fetch = {"headers": {"X-Token": "t"}, "user_agent": "ours", "min_pause_seconds": 0.01, "rate_limit": "1000/m"}
    expect = {"min_items": 2, "fields": {"url": 1, "again": 1}}
    with Site({"/": links("/a"), "/a": links()}) as site:
        done = crawl("plain", site.url, fetch=fetch, expect=expect, site="shop", site_rate_limit="1000/m")
        assert {visit.headers["User-Agent"] for visit in site.access_log} == {"ours"}
        assert {visit.headers["X-Token"] for visit in site.access_log} == {"t"}
    assert done.report["filled"] == {"url": 2, "again": 0}


def test_a_stopped_crawl_reports_though_a_page_does_not_come(start: Start, python: ProjectPython) -> None:
    with Site({"/": links("/slow/50", "/slow/51")}) as site:
        environ = {"CRAWL_STOP_GRACE": "1"}
        attempt = start("plain", site.url, cwd=WALK, python=python, settings=PLAIN, environ=environ)
        wait_until(lambda: site.hits("/") and (attempt.folder / "items.jsonl").stat().st_size > 0)
        os.kill(attempt.process.pid, signal.SIGINT)
        done = attempt.wait()
    assert done.report["finish_reason"] == "shutdown"


def test_no_crawl_starts_without_the_address_guard(start: Start, python: ProjectPython, tmp_path: Path) -> None:
    """As it was when Scrapy knew the setting by another name than we."""
    for package in python.path.iterdir():
        (tmp_path / package.name).symlink_to(package.resolve())
    (tmp_path / "sitecustomize.py").write_text("import crawler.scrapy_versions as v; v.RESOLVER_SETTING = 'OTHER'\n")
    unguarded = python._replace(path=tmp_path)
    with Site() as site:
        done = start("plain", site.url, cwd=WALK, python=unguarded, settings=PLAIN).wait()
        assert site.access_log == []
    assert done.exit_code == 1
    assert "The crawl does not start: the address guard of this node is not in place" in done.log
