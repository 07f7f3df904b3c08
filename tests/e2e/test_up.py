"""`discoverybot up` as a user has it: starts again, keeps what it knew, leaves nothing behind."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import psutil
import pytest
from forms import first_in_short, full_or_short, in_full
from sites.server import Site
from stack import Stack, running_stack, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]
NAMES = {"redis", "mongo", "scrapyd", "tailer", "worker", "beat", "gateway"}
#: What is hung before it is stopped; each in turn takes minutes.
ALL, SINGLE = "all", ("scrapyd", *sorted(NAMES - {"scrapyd"}))
#: Seconds from Ctrl-C until nothing is left, whatever hangs.
STOP_WITHIN = full_or_short(15, 30)
#: Of a crawl that takes longer than it is given when all stops.
PAGES = 200


def _family(stack: Stack) -> list[psutil.Process]:
    return psutil.Process(stack.process.pid).children(recursive=True)


def _alive(family: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def _crawl_without_end(stack: Stack, site: Site) -> str:
    """A crawl that is running, with its spider among the processes."""
    job_id = stack.crawl(f"{site.url}/endless/1", max_retries=3)
    wait_until(lambda: stack.status(job_id)["completed_pages"] > 0, what="the first page")
    assert _spiders(stack)
    return job_id


def _spiders(stack: Stack) -> set[int]:
    """Those that run, by their started marks: a forked one has the command line of what it was forked from."""
    marks = stack.home.glob("node/outbox/*/started")
    return {json.loads(mark.read_bytes())["pid"] for mark in marks} & {one.pid for one in _family(stack)}


class Interrupted(NamedTuple):
    """What a stack left that was stopped with Ctrl-C while a spider ran."""

    home: Path
    site: Site
    ready: dict[str, Any]
    #: Of a crawl that never ends by itself.
    job_id: str
    #: Of one that does.
    short_job_id: str
    family: list[psutil.Process]
    exit_code: int | None


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interrupted]:
    home = tmp_path_factory.mktemp("up")
    with Site() as site:
        site.delay = 0.5
        # as a user starts it
        with running_stack(home, forked=False, CRAWL_STOP_GRACE="1") as stack:
            ready, job_id = stack.ready, _crawl_without_end(stack, site)
            short = stack.crawl(f"{site.url}/tree/{PAGES}")
            wait_until(lambda: stack.status(short)["completed_pages"], what="the first page of the other crawl")
            family = _family(stack)
        site.delay = 0.1
        yield Interrupted(home, site, ready, job_id, short, family, stack.process.poll())


def test_ctrl_c_in_mid_crawl_leaves_no_process(interrupted: Interrupted) -> None:
    assert set(interrupted.ready["pids"]) == NAMES
    assert interrupted.exit_code == 0
    assert not _alive(interrupted.family)
    assert "did not stop" not in (interrupted.home / "up.log").read_text()


def test_the_next_start_goes_on_and_a_killed_stack_leaves_nothing(interrupted: Interrupted) -> None:
    with running_stack(interrupted.home, CRAWL_STOP_GRACE="1") as stack:
        kept = ("redis_url", "mongo_uri", "scrapyd_password")
        assert {name: stack.ready[name] for name in kept} == {name: interrupted.ready[name] for name in kept}
        wait_until(lambda: stack.status(interrupted.job_id)["attempt"] == 2, what="a second attempt")
        _is_run_again(stack, interrupted.short_job_id)
        _scrapyd_asks_for_its_password(stack)
        old = stack.ready["pids"]["gateway"]
        stack.kill("gateway")
        wait_until(lambda: stack.ready["pids"].get("gateway", old) != old, what="another gateway")
        wait_until(lambda: stack.http.get(f"{stack.url}/health").is_success, what="its health")
        wait_until(lambda: _spiders(stack), what="the spider")
        family = _family(stack)
        stack.process.kill()
        wait_until(lambda: not _alive(family), what="the end of all processes")


@pytest.mark.parametrize("hung", first_in_short([ALL, *SINGLE]))
def test_a_stack_whose_parts_hang_stops_within_fifteen_seconds_of_ctrl_c(tmp_path: Path, hung: str) -> None:
    with running_stack(tmp_path) as stack:
        family = _family(stack)
        for name in NAMES if hung == ALL else {hung}:
            stack.kill(name, signal.SIGSTOP)
        began = time.monotonic()
        stack.process.send_signal(signal.SIGINT)
        wait_until(lambda: stack.process.poll() is not None, what="the end")
        assert time.monotonic() - began < STOP_WITHIN
        assert not _alive(family)


def _is_run_again(stack: Stack, job_id: str) -> None:
    assert stack.wait_final(job_id, timeout=90)["status"] == "finished"
    # the numbers between are of attempts that a node which has just started did not take in time
    assert [attempt["status"] for attempt in stack.job(job_id)["attempts"]][1:] == ["finished"]
    assert len(stack.items(job_id)) == PAGES + 1


def _scrapyd_asks_for_its_password(stack: Stack) -> None:
    key = (stack.ready["scrapyd_username"], stack.ready["scrapyd_password"])
    door = f"{stack.ready['scrapyd_url']}/daemonstatus.json"
    assert stack.http.get(door).status_code == httpx2.codes.UNAUTHORIZED
    assert stack.http.get(door, auth=key).json()["status"] == "ok"


@in_full("the first key in embedded_stack and web/test_keys.py")
def test_a_stack_that_others_can_reach_makes_a_key_and_serves_nobody_without(tmp_path: Path) -> None:
    with running_stack(tmp_path, GATEWAY_HOST="0.0.0.0") as stack:
        (key,) = re.findall(r"db_first_[0-9a-f]{48}", stack.output.read_text())
        assert "refuses requests without a key" in stack.output.read_text()
        assert stack.http.get(f"{stack.url}/nodes").status_code == httpx2.codes.UNAUTHORIZED
        stack.http.headers["Authorization"] = f"Bearer {key}"
        nodes = stack.http.get(f"{stack.url}/nodes").raise_for_status().json()
        (node,) = nodes["nodes"]
        console = f"{stack.url}/nodes/{node['name']}/scrapyd"
        for page in ("/", "/jobs", "/logs/"):
            assert stack.http.get(console + page).raise_for_status().headers["content-type"].startswith("text/html")
        assert f"{console.removeprefix(stack.url)}/jobs" in stack.http.get(f"{console}/").text
