"""Sites that misbehave and parts that go away: truthful ends, nothing hangs, nothing accepted is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sites.server import Site, html
from stack import Stack, running_stack, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("stack")]


def test_a_site_that_is_down_is_an_error_that_says_so(stack: Stack) -> None:
    status = stack.wait_final(stack.crawl("http://127.0.0.1:9/", max_retries=0))
    assert status["status"] == "error"
    assert "refused" in status["message"].lower()


def test_a_page_of_fifty_megabytes_is_not_taken(stack: Stack, site: Site) -> None:
    status = stack.wait_final(stack.crawl(f"{site.url}/large-chunked/{50 << 20}", max_retries=0))
    assert (status["status"], status["completed_pages"]) == ("error", 0)


def test_a_redirect_loop_comes_to_an_end(stack: Stack, site: Site) -> None:
    assert stack.wait_final(stack.crawl(f"{site.url}/loop", max_retries=0))["status"] == "error"


def test_an_endless_site_ends_at_its_time_limit_with_what_it_has(stack: Stack, site: Site) -> None:
    site.delay = 0.1
    status = stack.wait_final(stack.crawl(f"{site.url}/endless/0", timeout=3))
    assert (status["status"], status["errors_count"]) == ("partial", 0)
    assert status["items_count"] > 0


def test_some_failing_pages_make_a_partial_result(stack: Stack, site: Site) -> None:
    names = ["/a", "/b", "/c", "/status/503"]
    site.pages["/"] = html("".join(f'<a href="{name}">x</a>' for name in names))
    site.pages.update({name: html("fine", "fine") for name in names[:3]})
    status = stack.wait_final(stack.crawl(f"{site.url}/"))
    assert (status["status"], status["completed_pages"], status["errors_count"]) == ("partial", 4, 1)


def test_a_page_and_a_log_line_in_latin_1_do_no_harm(stack: Stack, site: Site) -> None:
    job_id = stack.crawl(f"{site.url}/latin-1")
    assert stack.wait_final(job_id)["status"] == "finished"
    assert stack.items(job_id)[0]["title"] == "Déjà vu"


def test_loopback_is_refused_unless_it_is_allowed(stack: Stack, site: Site) -> None:
    answer = stack.http.post(
        f"{stack.url}/crawl", json={"user_id": "u", "spider": "seo", "start_urls": ["http://[::1]/"]}
    )
    assert answer.status_code == 403
    assert "start_urls" in answer.text


@contextmanager
def stopped(stack: Stack, store: str) -> Iterator[None]:
    stack.kill(store, signal.SIGSTOP)
    try:
        yield
    finally:
        stack.kill(store, signal.SIGCONT)


def test_stores_that_are_stopped_for_twenty_seconds_cost_time_and_nothing_else(stack: Stack, site: Site) -> None:
    """Redis for twenty seconds, MongoDB for twenty seconds, and for ten of them both: what a user sees is a delay."""
    site.delay = 0.05
    job_id = stack.crawl(f"{site.url}/tree/300")
    wait_until(lambda: stack.status(job_id)["completed_pages"] > 10, what="some pages")
    # no race is slept over here: how long the stores are away is what is tested
    with stopped(stack, "mongo"):
        time.sleep(10)
        with stopped(stack, "redis"):
            time.sleep(10)
            stack.kill("mongo", signal.SIGCONT)
            time.sleep(10)
    assert stack.wait_final(job_id, timeout=90)["status"] == "finished"
    assert len(stack.items(job_id)) == 301
    assert stack.log(job_id) == stack.log_on_node(job_id)
    wait_until(lambda: stack.http.get(f"{stack.url}/health").json()["status"] == "ok", what="health")


@contextmanager
def tiny_disk(path: Path, size: str) -> Iterator[None]:
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(hog: Path) -> None:
    """Take what is left of the disk."""
    with hog.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk_on_the_node_is_told_and_does_not_stop_the_node(tmp_path: Path, site: Site) -> None:
    home = tmp_path / "home"
    room = {"NODE_MIN_FREE_BYTES": str(1 << 20)}
    with tiny_disk(home / "node", "16m"), running_stack(home, CRAWL_STOP_GRACE="2", **room) as stack:
        hog = home / "node" / "hog"
        site.delay = 0.1
        caught = stack.crawl(f"{site.url}/tree/300", max_retries=0)
        wait_until(lambda: stack.status(caught)["completed_pages"], what="the first page")
        fill(hog)
        end = stack.wait_final(caught)
        assert (end["status"], end["message"] is None) in {("error", False), ("partial", False)}
        fill(hog)
        waiting = stack.crawl(f"{site.url}/tree/6")
        wait_until(lambda: stack.status(waiting)["waiting_reason"] == "disk_full", what="why it waits")
        hog.unlink()
        assert stack.wait_final(waiting)["status"] == "finished"


def test_a_crawl_that_was_running_when_the_platform_stopped_is_run_again(tmp_path: Path, site: Site) -> None:
    home = tmp_path / "home"
    site.delay = 0.1
    with running_stack(home, CRAWL_STOP_GRACE="2") as stack:
        job_id = stack.crawl(f"{site.url}/tree/400")
        wait_until(lambda: stack.status(job_id)["completed_pages"], what="the first page")
    began = time.monotonic()
    with running_stack(home, CRAWL_STOP_GRACE="2") as stack:
        took = time.monotonic() - began
        assert stack.wait_final(job_id, timeout=90)["status"] == "finished"
        assert [attempt["attempt"] for attempt in stack.job(job_id)["attempts"]] == [1, 2]
        assert len(stack.items(job_id)) == 401
    assert took < 60
