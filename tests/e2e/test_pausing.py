"""A crawl is paused, everything is restarted, and it goes on where it was: no page twice, each item once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from event_source import Event, read_events
from forms import in_full
from sites.server import Site, links
from stack import Stack, wait_until

pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(300),
    in_full("pauses in services/test_pausing.py, crawls that go on in crawler/test_frontier.py"),
]
PAGES = 240
#: Requests of one crawl at once.
CONCURRENCY = 16
PATIENCE = 90.0


@pytest.fixture
def slow_site() -> Iterator[Site]:
    pages = {f"/p/{n}": links(f"/p/{(2 * n + 1) % PAGES}", f"/p/{(2 * n + 2) % PAGES}") for n in range(PAGES)}
    with Site(pages, delay=0.2) as site:
        yield site


def test_a_paused_crawl_goes_on_after_restarts_of_the_node_and_the_gateway(stack: Stack, slow_site: Site) -> None:
    job = stack.crawl(f"{slow_site.url}/p/0")
    wait_until(lambda: len(slow_site.paths()) > PAGES // 8, timeout=PATIENCE, what="a part of the crawl")
    ask(stack, job, "pause")
    seen = events_until_paused(stack, job)
    assert "end" not in {event.event for event in seen}
    assert stack.http.get(f"{stack.url}/nodes").json()["nodes"][0]["used_slots"] == 0
    fetched = len(slow_site.paths())
    assert fetched < PAGES
    for name in ("scrapyd", "tailer", "gateway"):
        pid = stack.ready["pids"][name]
        stack.kill(name)
        stack.wait_for_another(name, pid)
    wait_until(lambda: stack.status(job)["status"] == "paused", timeout=PATIENCE, what="the paused job")
    assert len(slow_site.paths()) == fetched
    ask(stack, job, "resume")
    assert stack.wait_final(job, timeout=PATIENCE)["status"] == "finished"
    visits = Counter(slow_site.paths())
    # those on their way when it was stopped, if any
    assert visits.total() - len(visits) <= CONCURRENCY
    assert set(visits) == {f"/p/{n}" for n in range(PAGES)}
    pages = [item["url"] for item in stack.items(job) if item["type"] == "page"]
    assert (len(pages), len(set(pages))) == (PAGES, PAGES)
    first, second = stack.job(job)["attempts"]
    assert (first["status"], first["exit"]["stopped_by"], second["status"]) == ("paused", "pause", "finished")
    assert b"Goes on where attempt 1 was interrupted" in stack.log(job)


def events_until_paused(stack: Stack, job: str) -> list[Event]:
    seen: list[Event] = []
    with stack.http.stream("GET", f"{stack.url}/jobs/{job}/logs", timeout=PATIENCE) as response:
        for event in read_events(response):
            seen.append(event)
            if event.event == "status" and event.data["status"] == "paused":
                return seen
    raise AssertionError(f"the stream has ended: {seen[-3:]}")


def ask(stack: Stack, job: str, what: str) -> None:
    stack.http.post(f"{stack.url}/jobs/{job}/{what}").raise_for_status()
