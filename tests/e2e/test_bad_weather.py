"""Sites that misbehave and parts that go away: truthful ends, nothing hangs, nothing accepted is lost."""

from __future__ import annotations

import http.client
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from forms import in_full
from sites.server import Site, html
from stack import Stack, wait_until

pytestmark = [pytest.mark.stack]


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


def test_a_client_that_paused_is_answered_on_the_connection_that_it_has(stack: Stack) -> None:
    with closing(http.client.HTTPConnection(stack.url.removeprefix("http://"), timeout=15)) as client:
        for pause in (0, 6):  # longer than most clients keep one; how long is what is tested
            time.sleep(pause)
            client.request("GET", "/health/live")
            used = client.sock
            assert client.getresponse().read()
            assert client.sock is used is not None


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


@in_full("each store away in faults/test_stores_away.py")
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
