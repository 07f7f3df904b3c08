"""Crawls in which nothing happens any more are stopped; those that wait on purpose, or work in silence, are not."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from eggs import egg, source
from forms import in_full
from node import ROOT, Node
from sites.server import Reply, Site, html

from gateway.contract.reasons import Reason
from gateway.contract.records import ExitReport
from gateway.jobs.outcome import Outcome, decide

#: Seconds. In the second test spiders must have been imported within it, on a machine that does much else.
QUICK, STALL = 2, 6
PAUSE = 8
SPIDERS = """
import asyncio, time
import scrapy

class Blocked(scrapy.Spider):
    name = "blocked"

    def parse(self, response):
        time.sleep(600)

class Waiting(scrapy.Spider):
    name = "waiting"
    custom_settings = {"LOGSTATS_INTERVAL": 0.3}

    async def parse(self, response):
        await asyncio.sleep(600)

class Slow(scrapy.Spider):
    name = "slow"
    custom_settings = {"DOWNLOAD_DELAY": %d, "RANDOMIZE_DOWNLOAD_DELAY": False, "ROBOTSTXT_OBEY": False}

    def parse(self, response):
        pass
"""
TOLD = f"no log line, request or item for {STALL} seconds"


@pytest.mark.parametrize("node_fork", ["true", "false"], ids=["forked", "started"])
def test_one_that_stands_still_is_asked_to_stop_then_killed_also_by_the_next_scrapyd(
    new_node: Callable[..., Any],
) -> None:
    node = new_node(CRAWL_STALL_SECONDS=str(QUICK), NODE_SLOTS="4").start()
    polite, stubborn, murmuring = node.run("polite"), node.run("stubborn"), node.run("murmurs")
    stopped = node.run_until_ready("polite")
    os.kill(pid_of(stopped), signal.SIGSTOP)
    for folder, code, number in (
        (polite, 0, None),
        (stubborn, None, signal.SIGKILL),
        (stopped, None, signal.SIGKILL),
    ):
        report = node.exit_of(folder)
        assert (report["stopped_by"], report["stall_seconds"]) == ("stall", QUICK)
        assert (report.get("exit_code"), report.get("signal")) == (code, number)
    assert node.exit_of(murmuring)["exit_code"] == 0
    left = node.run_until_ready("polite")
    node.end(signal.SIGKILL)
    node.start()
    node.wait_for((left / "asked").exists)
    assert (left / "stopping").read_text() == "stall"


def pid_of(folder: Path) -> int:
    from crawler.node.started_mark import read_mark  # noqa: PLC0415 - loads half of Twisted

    pid, _ = read_mark(folder)
    assert pid is not None
    return pid


def outcome_of(node: Node, folder: Path) -> Outcome:
    node.wait_for((folder / "exit.json").exists, 90)
    return decide(ExitReport.model_validate(node.exit_of(folder)))


@in_full("stand-ins above")
def test_real_spiders_may_wait_for_their_turn_but_not_for_ever(tmp_path: Path) -> None:
    chain = {f"/chain/{n}": Reply(html(f'<a href="{n + 1}">.</a>', title=f"{n}"), delay=0.5) for n in range(16)}
    pages = {**chain, "/a": html("a"), "/b": html("b"), "/never": Reply(delay=600)}
    allowed = {"CRAWL_ALLOW_NETWORKS": "127.0.0.0/8", "CRAWL_STALL_SECONDS": str(STALL)}
    with Site(pages) as site:
        node = Node(tmp_path / "home", ROOT, PYTHONPATH="", NODE_SLOTS="6", CRAWL_STOP_GRACE="4", **allowed)
        try:
            node.start()
            files = {"egg": ("patience.egg", egg(source("patience", spiders=SPIDERS % PAUSE)))}
            data = {"project": "patience", "version": "1"}
            assert node.client.post("/addversion.json", data=data, files=files, timeout=60).json()["status"] == "ok"
            two = [f"{site.url}/a", f"{site.url}/b"]
            patient = [
                node.run("slow", project="patience", start_urls=two),
                node.run("seo", start_urls=two, fetch={"min_pause_seconds": PAUSE, "max_pause_seconds": PAUSE}),
                node.run("seo", start_urls=[f"{site.url}/chain/0"]),
            ]
            stuck = [
                node.run("blocked", project="patience", start_urls=two),
                node.run("waiting", project="patience", start_urls=two),
                node.run("seo", start_urls=[f"{site.url}/never"]),
            ]
            assert [outcome_of(node, folder).status for folder in patient] == ["finished"] * 3
            stalled = ("error", Reason.STALLED, TOLD, True)
            assert [outcome_of(node, folder) for folder in stuck] == [stalled] * 3
            assert [node.exit_of(folder).get("signal") for folder in stuck] == [signal.SIGKILL, None, None]
            assert "logstats] INFO: Crawled" in (stuck[1] / "crawl.log").read_text()
        finally:
            node.clean_up()
