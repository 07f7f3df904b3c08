"""The runner and the add-on, with spiders that know nothing of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sites.server import Site, links

from .conftest import ROOT, Crawl, Run, Start

SHOP = Path(__file__).parent / "shop"
HEAD = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \[[\w.]+\] (DEBUG|INFO|WARNING|ERROR): ")


@pytest.fixture(scope="module")
def doors(run: Run) -> Crawl:
    with Site({"/": links("/deeper"), "/deeper": links()}) as site:
        params = {"text": "plain", "number": 3, "flag": True}
        return run("doors", site.url, cwd=SHOP, depth=0, params=params, environ={"TZ": "Asia/Tokyo"})


def item(crawl: Crawl, kind: str) -> dict[str, object]:
    return next(item for item in crawl.items if item["type"] == kind)


def test_a_foreign_spider_gets_its_start_urls_as_a_list_and_its_parameters_as_text(doors: Crawl) -> None:
    given = item(doors, "arguments")
    assert isinstance(given["start_urls"], list)
    assert (given["depth"], given["text"], given["number"], given["flag"]) == (0, "plain", "3", "true")


def test_a_spider_is_told_its_job_as_scrapyd_and_scrapy_cloud_tell_it(doors: Crawl) -> None:
    told = item(doors, "environment")
    assert told["SCRAPY_JOB"]
    # clients of theirs read three numbers
    assert len([int(part) for part in str(told["SHUB_JOBKEY"]).split("/")]) == 3


def test_depth_0_is_the_start_urls_alone_for_a_foreign_spider_too(doors: Crawl) -> None:
    assert [one["depth"] for one in doors.items if one["type"] == "deeper"] == [0]


def test_nothing_that_a_project_sets_puts_the_remote_control_on(doors: Crawl) -> None:
    names = item(doors, "extensions")["names"]
    assert isinstance(names, list)
    assert "ProgressReport" in names
    assert not {"RemoteControl", "TelnetConsole"} & set(names)


def test_files_are_out_of_reach(doors: Crawl) -> None:
    assert "file" in {str(one["url"]).partition(":")[0] for one in doors.items if one["type"] == "refused"}


def test_the_log_has_utc_times_with_milliseconds_and_goes_to_one_file(doors: Crawl) -> None:
    first = doors.log.splitlines()[0]
    assert HEAD.match(first), first
    assert abs(time.time() - _seconds(first)) < 3600, "not in UTC"
    assert not (SHOP / "elsewhere.log").exists()


def _seconds(line: str) -> float:
    return time.mktime(time.strptime(line[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone


def test_an_item_that_json_cannot_quite_hold_is_kept(doors: Crawl) -> None:
    odd = item(doors, "odd")
    assert odd["big"] == 2**70
    assert odd["set"] == [1]


def test_an_exception_in_a_pipeline_is_an_error_of_the_crawl(doors: Crawl) -> None:
    assert any("a bad item" in error["reason"] for error in doors.report["errors"])
    assert not any(one["type"] == "bad" for one in doors.items)


@pytest.mark.parametrize(
    ("spider", "said"), [("raises_at_start", "no start today"), ("raises_in_callback", "cannot read")]
)
def test_a_spider_that_raises_ends_with_errors_in_its_report(run: Run, site: Site, spider: str, said: str) -> None:
    crawl = run(spider, f"{site.url}/tree/1", cwd=SHOP)
    assert (crawl.progress["completed_pages"], crawl.progress["errors_count"]) == (0, 1)
    assert said in crawl.report["errors"][0]["reason"]


@pytest.mark.parametrize(
    ("spider", "said"), [("raises_when_built", "cannot be built"), ("no_such_spider", "no_such_spider")]
)
def test_a_spider_that_cannot_be_built_ends_with_code_1_and_says_why(run: Run, spider: str, said: str) -> None:
    crawl = run(spider, "http://127.0.0.1:9/", cwd=SHOP)
    assert crawl.exit_code == 1
    assert said in crawl.log.splitlines()[-1] + crawl.log
    # where there is no spider there is nobody to report
    assert bool(list(crawl.folder.rglob("report.json"))) == (spider != "no_such_spider")


def test_a_spider_without_an_output_ends_as_any_other(run: Run, site: Site) -> None:
    crawl = run("silenced", f"{site.url}/tree/1", cwd=SHOP)
    assert (crawl.exit_code, crawl.report["finish_reason"], len(crawl.items)) == (0, "finished", 1)


def test_a_politely_stopped_crawl_reports_though_a_page_does_not_come(start: Start, site: Site) -> None:
    site.pages["/"] = links("/slow/50", "/slow/51")
    attempt = start("seo", site.url, environ={"CRAWL_STOP_GRACE": "1"})
    _until(lambda: site.hits("/") and (attempt.folder / "items.jsonl").stat().st_size > 0)
    began = time.monotonic()
    os.kill(attempt.process.pid, signal.SIGINT)
    crawl = attempt.wait()
    assert time.monotonic() - began < 30
    assert crawl.report["finish_reason"] == "shutdown"
    assert crawl.progress["completed_pages"] == len(crawl.pages) == 1
    assert crawl.progress["errors_count"] == 0


def _until(condition: object, deadline: float = 60) -> None:
    assert callable(condition)
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def test_without_an_attempt_it_is_scrapyds_runner() -> None:
    env = {"PATH": os.environ["PATH"], "SCRAPY_PROJECT": "default"}
    command = [sys.executable, "-m", "crawler.node.runner", "list"]
    done = subprocess.run(command, capture_output=True, env=env, cwd=ROOT, check=True, text=True)
    assert "seo" in done.stdout.split()


def test_a_crawl_that_stops_itself_was_not_stopped_by_its_node(run: Run, site: Site) -> None:
    crawl = run("stops_itself", f"{site.url}/tree/1", cwd=SHOP)
    assert (crawl.report["finish_reason"], len(crawl.items)) == ("stopped_itself", 1)
