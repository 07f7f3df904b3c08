"""A crawl that was killed goes on where it was: the same pages, each item once."""

from __future__ import annotations

import base64
import io
import json
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from forms import first_in_short
from sites.job_board import job_board
from sites.server import Reply, Site, html, links
from stack import wait_until

from crawler.frontier.journal import frame, frames, read_frontier

from .conftest import ROOT, Attempt, Crawl, Start

WALK = Path(__file__).parent / "walk"
PAGES = 45
#: Requests that may be under way: Scrapy's concurrency, and callbacks and pipelines that are not at their end.
UNDONE = 80
CONTINUED = "Goes on where attempt"


def pages() -> dict[str, str]:
    """A graph of pages in which some links are missing, fail once, or lead to others."""
    chance = random.Random(7)
    return {
        f"/p/{n}": links(
            *(f"/p/{chance.randrange(PAGES)}" for _ in range(8)),
            f"/p/{(2 * n + 1) % PAGES}",
            f"/p/{(2 * n + 2) % PAGES}",
            f"/gone/{n % 7}",
            f"/flaky/1/{n % 11}",
            f"/redirect-to?/p/{7 * n % PAGES}",
        )
        for n in range(PAGES)
    }


@pytest.fixture
def slow_site() -> Iterator[Site]:
    with Site(pages(), delay=0.01) as site:
        yield site


def kill(attempt: Attempt, items: int) -> bool:
    """Kill it once it has written so many items of its own; false if it was at its end before."""
    end, path = time.monotonic() + 60, attempt.folder / "items.jsonl"
    while not (path.exists() and path.read_bytes().count(b"\n") >= items):
        assert time.monotonic() < end
        if attempt.process.poll() is not None:
            return False
        time.sleep(0.005)
    attempt.end()
    return not (attempt.folder / "report.json").exists()


def crawl_with_kills(start: Start, site: Site, spider: str, kills: int, **spec: Any) -> tuple[Crawl, int]:
    """The crawl, and how often it was killed and went on."""
    attempt, continued = start(spider, f"{site.url}/p/0", **spec), 0
    for number in range(kills):
        if not kill(attempt, 15 * (number + 1)):
            break
        attempt, continued = start(spider, f"{site.url}/p/0", after=attempt.folder, **spec), continued + 1
    return attempt.wait(), continued


def comparable(site: Site, crawl: Crawl) -> Counter[str]:
    """The items, without what differs from one crawl to another: by which way and how quickly a page was found."""
    return Counter(json.dumps(_without_chance(item), sort_keys=True).replace(site.url, "") for item in crawl.items)


def _without_chance(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in {"response_time_ms", "depth", "redirects"}}


@pytest.mark.parametrize(
    ("spider", "cwd", "spec"),
    first_in_short(
        [
            ("seo", ROOT, {}),
            ("plain", WALK, {}),
            ("seo", ROOT, {"depth": 3}),
            ("extract", ROOT, {"depth": 4, "params": {"fields": {"first": "a"}}}),
            ("waits", WALK, {}),
            ("rules", WALK, {}),
        ],
        2,
    ),
    ids=["seo", "plain", "seo by level", "extract", "waits", "rules"],
)
def test_a_killed_crawl_goes_on(start: Start, spider: str, cwd: Path, spec: dict[str, Any]) -> None:
    with Site(pages(), delay=0.01) as site:
        whole, _ = crawl_with_kills(start, site, spider, 0, cwd=cwd, **spec)
        all_pages, all_items = Counter(site.paths()), comparable(site, whole)
    with Site(pages(), delay=0.01) as site:
        crawl, continued = crawl_with_kills(start, site, spider, 3, cwd=cwd, **spec)
        assert continued, "it was killed"
        assert CONTINUED in crawl.log
        assert set(site.paths()) == set(all_pages)
        again = Counter(site.paths()) - all_pages
        assert again.total() <= continued * UNDONE
        assert comparable(site, crawl) == all_items
    assert crawl.progress["items_count"] == len(crawl.items)
    assert crawl.progress["completed_pages"] == whole.progress["completed_pages"]
    assert crawl.progress["errors_count"] == whole.progress["errors_count"]
    assert not (crawl.folder / "frontier").exists(), "there is nothing to go on with"


def test_a_killed_crawl_of_a_job_board_goes_on(start: Start) -> None:
    with job_board(100) as board:
        record = board.record("board", "details", "next_link")
        template = record["search_url"].format(keywords="", location="", page="{page}")
        names = ("pagination_type", "selectors")
        params = {"search_url": template, "details": True, **{name: record[name] for name in names}}
        attempt, continued = start("jobs", template.replace("{page}", "1"), params=params), 0
        while continued < 3 and kill(attempt, 20 * (continued + 1)):
            attempt = start("jobs", template.replace("{page}", "1"), params=params, after=attempt.folder)
            continued += 1
        crawl = attempt.wait()
        again = Counter(board.paths()) - Counter(set(board.paths()))
    assert continued
    assert Counter(item["url"] for item in crawl.items).most_common(1)[0][1] == 1
    assert len(crawl.items) == 100
    assert again.total() <= continued * UNDONE


def test_no_more_is_asked_for_again_than_may_be_undone(start: Start) -> None:
    environ = {"CRAWL_MAX_UNDONE": "4"}
    with Site(pages()) as site:
        start("plain", f"{site.url}/p/0", cwd=WALK).wait()
        once = Counter(site.paths())
    with Site(pages(), delay=0.01) as site:
        crawl, continued = crawl_with_kills(start, site, "plain", 3, cwd=WALK, environ=environ)
        again = Counter(site.paths()) - once
    assert continued
    assert again.total() <= continued * 4
    assert crawl.report["finish_reason"] == "finished"


def test_one_that_is_interrupted_goes_on_too(start: Start) -> None:
    with Site(pages(), delay=0.01) as site:
        whole = start("plain", f"{site.url}/p/0", cwd=WALK).wait()
        all_pages, all_items = set(site.paths()), comparable(site, whole)
    with Site(pages(), delay=0.05) as site:
        first = start("plain", f"{site.url}/p/0", cwd=WALK)
        items = first.folder / "items.jsonl"
        wait_until(lambda: items.exists() and items.read_bytes().count(b"\n") >= 15, what="items")
        first.process.terminate()
        assert first.wait().report["finish_reason"] == "shutdown"
        crawl = start("plain", f"{site.url}/p/0", cwd=WALK, after=first.folder).wait()
        assert CONTINUED in crawl.log
        assert set(site.paths()) == all_pages
        assert comparable(site, crawl) == all_items


def test_a_retry_of_a_crawl_that_went_on_to_its_end_begins_anew(start: Start, slow_site: Site) -> None:
    crawl, continued = crawl_with_kills(start, slow_site, "plain", 1, cwd=WALK)
    assert continued
    asked = len(slow_site.paths())
    again = start("plain", f"{slow_site.url}/p/0", cwd=WALK, after=crawl.folder).wait()
    assert CONTINUED not in again.log
    assert set(slow_site.paths()[asked:]) == set(slow_site.paths())


@pytest.mark.parametrize("point", ["spider.report.before", "spider.report.after", "spider.frontier_removed.before"])
def test_one_that_is_killed_while_it_ends_asks_for_nothing_again(start: Start, tmp_path: Path, point: str) -> None:
    with Site(pages()) as site:
        whole = start("plain", f"{site.url}/p/0", cwd=WALK).wait()
        (tmp_path / point).touch()
        plan = {"DISCOVERYBOT_CRASH_PLAN": str(tmp_path)}
        killed = start("plain", f"{site.url}/p/0", cwd=WALK, environ=plan).wait()
        assert killed.exit_code == -signal.SIGKILL
        asked = len(site.paths())
        crawl = start("plain", f"{site.url}/p/0", cwd=WALK, after=killed.folder).wait()
        assert len(site.paths()) == asked
        assert comparable(site, crawl) == comparable(site, whole)
    assert not (crawl.folder / "frontier").exists()


def test_one_that_is_killed_once_it_has_all_items_has_no_more(start: Start, slow_site: Site, tmp_path: Path) -> None:
    (tmp_path / "spider.report.before").touch()
    plan = {"DISCOVERYBOT_CRASH_PLAN": str(tmp_path)}
    killed = start("plain", f"{slow_site.url}/p/0", cwd=WALK, environ=plan, max_items=20).wait()
    asked = len(slow_site.paths())
    crawl = start("plain", f"{slow_site.url}/p/0", cwd=WALK, after=killed.folder, max_items=20).wait()
    assert CONTINUED in crawl.log
    assert (len(crawl.items), crawl.report["finish_reason"]) == (20, "closespider_itemcount")
    assert len(slow_site.paths()) - asked < PAGES


def test_limits_count_what_was_there_before(start: Start, slow_site: Site) -> None:
    crawl, continued = crawl_with_kills(start, slow_site, "plain", 1, cwd=WALK, max_items=40)
    assert continued
    assert len(crawl.items) == 40
    assert crawl.report["finish_reason"] == "closespider_itemcount"


def test_what_cannot_be_written_down_is_named_and_begins_anew(start: Start, slow_site: Site) -> None:
    attempt = start("nameless", f"{slow_site.url}/p/0", cwd=WALK)
    assert kill(attempt, 15)
    first = Crawl(-9, attempt.folder)
    assert "it will begin anew: <GET" in first.log
    assert "cannot be written down: callback" in first.log
    crawl = start("nameless", f"{slow_site.url}/p/0", cwd=WALK, after=attempt.folder).wait()
    assert CONTINUED not in crawl.log
    assert crawl.report["progress"]["can_go_on"] is False
    assert len({item["url"] for item in crawl.items}) > PAGES


def test_items_of_a_long_callback_are_there_before_its_end_and_not_twice_after_a_kill(
    start: Start, slow_site: Site
) -> None:
    attempt = start("slow", f"{slow_site.url}/p/0", cwd=WALK)
    assert kill(attempt, 30)
    crawl = start("slow", f"{slow_site.url}/p/0", cwd=WALK, after=attempt.folder, environ={"EACH": "0"}).wait()
    assert [item["number"] for item in crawl.items] == list(range(200))
    assert slow_site.hits("/p/0") == 2, "its request was not done"


def test_the_first_errors_are_written_where_they_have_changed_and_are_those_of_the_next_attempt(
    start: Start, slow_site: Site
) -> None:
    attempt = start("plain", f"{slow_site.url}/p/0", cwd=WALK)
    assert kill(attempt, 30)
    with (attempt.folder / "frontier").open("rb") as file:
        heads = [head for head, _ in frames(file)]
    samples = [head["samples"] for head in heads if "samples" in head]
    assert len(samples) < len(heads)
    assert all(before != after for before, after in pairwise(samples))
    crawl = start("plain", f"{slow_site.url}/p/0", cwd=WALK, after=attempt.folder).wait()
    errors = samples[-1]["errors"]
    assert crawl.report["errors"][: len(errors)] == errors


def test_a_frontier_that_cannot_be_read_is_left_alone(start: Start, slow_site: Site) -> None:
    attempt = start("plain", f"{slow_site.url}/p/0", cwd=WALK)
    assert kill(attempt, 15)
    frontier = attempt.folder / "frontier"
    frontier.unlink()
    frontier.mkdir()
    crawl = start("plain", f"{slow_site.url}/p/0", cwd=WALK, after=attempt.folder).wait()
    assert "Begins anew" in crawl.log
    assert crawl.report["finish_reason"] == "finished"


def test_an_attempt_on_another_node_says_that_it_begins_anew(start: Start, slow_site: Site) -> None:
    crawl = start("plain", f"{slow_site.url}/p/0", cwd=WALK, attempt=2, left_on="n1").wait()
    assert "Begins anew: the remaining requests are only on node n1" in crawl.log
    assert crawl.report["progress"]["can_go_on"]


# --- whatever order items come in, and whatever becomes of them


def interrupt(attempt: Attempt, items: int, signum: int) -> None:
    """Once it has written so many items."""
    path = attempt.folder / "items.jsonl"
    wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= items, what="items")
    attempt.process.send_signal(signum)
    attempt.process.wait(60)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "paused"])
def test_items_that_overtake_each_other_are_there_once(start: Start, signum: int) -> None:
    with Site({"/p/0": links("/p/1"), "/p/1": html("the last one")}) as site:
        slow = {"SLOWEST": "4", "SEED": "1", "CRAWL_STOP_GRACE": "1"}
        attempt = start("shuffled", f"{site.url}/p/0", cwd=WALK, environ=slow)
        # most of them, before the page is done
        interrupt(attempt, 45, signum)
        crawl = start("shuffled", f"{site.url}/p/0", cwd=WALK, after=attempt.folder).wait()
    assert CONTINUED in crawl.log
    assert " 0 are of requests that were not done" not in crawl.log
    kept = [number for number in range(40) if number % 10 != 9]
    expected = Counter((url, number) for url in (f"{site.url}/p/0", f"{site.url}/p/1") for number in [*kept, 0])
    expected += Counter(("start", number) for number in kept if number < 20)
    assert Counter((item["url"], item["number"]) for item in crawl.items) == expected
    assert len(crawl.items) == crawl.progress["items_count"]


def test_what_start_gave_counts_once_it_is_done(start: Start) -> None:
    with Site({"/p/0": links("/endless/0")}, delay=0.01) as site:
        attempt = start("shuffled", f"{site.url}/p/0", cwd=WALK)
        interrupt(attempt, 200, signal.SIGKILL)
        of_start = [item for item in Crawl(0, attempt.folder).items if item["url"] == "start"]
        second = start("shuffled", f"{site.url}/p/0", cwd=WALK, after=attempt.folder)
        interrupt(second, 300, signal.SIGKILL)
    assert [item for item in Crawl(0, second.folder).items if item["url"] == "start"] == of_start
    assert len(of_start) == 18


def test_requests_of_one_fingerprint_are_told_apart_and_those_that_differ_each_time_recognised(start: Start) -> None:
    site_of = {"/p/0": html("the first"), "/twin": html("two"), **{f"/leaf/{n}": html("leaf") for n in range(6)}}
    with Site(site_of, delay=0.1) as site:
        attempt = start("twins", f"{site.url}/p/0", cwd=WALK, environ={"SLOWEST": "60"})
        interrupt(attempt, 6, signal.SIGKILL)
        crawl = start("twins", f"{site.url}/p/0", cwd=WALK, after=attempt.folder).wait()
        asked = Counter(site.paths())
    assert CONTINUED in crawl.log
    assert sorted(item["number"] for item in crawl.items) == [-1] * 6 + list(range(6))
    assert sorted(item["url"] for item in crawl.items if item["number"] < 0) == [
        f"{site.url}/leaf/{n}" for n in range(6)
    ]
    # and those that were under way: one in the callback, one on its way
    assert sum(asked.values()) <= 14 + 2


def test_a_request_that_is_given_once_more_is_done_as_often_as_it_was_given(start: Start) -> None:
    with Site({"/p/0": html("wait"), "/last": Reply(delay=60)}) as site:
        attempt = start("polls", f"{site.url}/p/0", cwd=WALK)
        interrupt(attempt, 3, signal.SIGKILL)
        site.pages["/last"] = html("done")
        crawl = start("polls", f"{site.url}/p/0", cwd=WALK, after=attempt.folder).wait()
    assert CONTINUED in crawl.log
    assert crawl.items == [{"polls": 1}, {"polls": 2}, {"polls": 3}, {"url": f"{site.url}/last"}]


def test_what_is_given_in_the_name_of_no_page_is_not_taken_for_what_start_gave(start: Start) -> None:
    with Site({"/p/0": Reply(delay=60)}) as site:
        attempt = start("second_round", f"{site.url}/p/0", cwd=WALK, environ={"CRAWL_STOP_GRACE": "1"})
        frontier = attempt.folder / "frontier"
        wait_until(lambda: frontier.exists() and read_frontier(attempt.folder).pending, what="its request")
        interrupt(attempt, 0, signal.SIGTERM)
        site.pages["/p/0"] = html("a page")
        crawl = start("second_round", f"{site.url}/p/0", cwd=WALK, after=attempt.folder).wait()
    assert CONTINUED in crawl.log
    assert crawl.items == [{"url": f"{site.url}/p/0"}]


@pytest.mark.parametrize("sets", [True, False], ids=["the site's, too", "its own"])
def test_each_session_has_its_cookies_again(start: Start, *, sets: bool) -> None:
    pages = {f"/p/{n}": Reply(headers={"Set-Cookie": f"site={n}"} if sets else {}) for n in range(30)}
    with Site({**pages, "/p/last": Reply(delay=60)}) as site:
        urls = [f"{site.url}{path}" for path in pages]
        attempt = start("jars", *urls, cwd=WALK)
        interrupt(attempt, 30, signal.SIGKILL)
        left, written = read_frontier(attempt.folder), (attempt.folder / "frontier").read_bytes()
        site.pages["/p/last"] = html("done")
        crawl = start("jars", *urls, cwd=WALK, after=attempt.folder).wait()
    # each jar is written a few times, and not with each page
    assert written.count(b"own") < 30 * 10
    assert len(left.pending) == 30
    sent = Counter("; ".join(sorted(item["sent"].split("; "))) for item in crawl.items[30:])
    assert sent == Counter(f"own={n}; site={n}" if sets else f"own={n}" for n in range(30))


def test_an_item_whose_file_was_under_way_at_a_pause_has_it_after_all(start: Start, tmp_path: Path) -> None:
    store, walk = {"STORE": "kept"}, tmp_path / "walk"
    # files are kept below the folder in which it runs
    shutil.copytree(WALK, walk)
    files = {f"/file/{n}": Reply("a file", delay=3 * (n == 4)) for n in range(5)}
    with Site({"/p/0": html("files"), **files}) as site:
        attempt = start("files", f"{site.url}/p/0", cwd=walk, environ={"CRAWL_STOP_GRACE": "1", **store})
        wait_until(lambda: len(site.paths()) == 5, what="all but the slow file")
        attempt.process.terminate()
        assert attempt.wait().report["finish_reason"] == "shutdown"
        crawl = start("files", f"{site.url}/p/0", cwd=walk, after=attempt.folder, environ=store).wait()
    assert CONTINUED in crawl.log
    assert sorted(item["number"] for item in crawl.items) == list(range(5))
    assert all(item["files"] for item in crawl.items)
    assert crawl.progress["errors_count"] == 0


@pytest.mark.parametrize(
    ("environ", "named"), first_in_short([({}, "parse_page"), ({"THING": "1"}, "Thing")]), ids=["callback", "meta"]
)
def test_what_cannot_be_restored_is_named_and_begins_anew(
    start: Start, slow_site: Site, environ: dict[str, str], named: str
) -> None:
    attempt = start("changing", f"{slow_site.url}/p/0", cwd=WALK, environ=environ)
    assert kill(attempt, 15)
    new = {"NEW_VERSION": "1"}
    crawl = start("changing", f"{slow_site.url}/p/0", cwd=WALK, after=attempt.folder, environ=new).wait()
    begins_anew = [line for line in crawl.log.splitlines() if "Begins anew: what attempt 1 has left" in line]
    assert len(begins_anew) == 1
    assert named in begins_anew[0]
    assert crawl.report["finish_reason"] == "finished"
    urls = Counter(item["url"] for item in crawl.items)
    # what `start()` gives is not filtered
    assert urls.keys() - {url for url, times in urls.items() if times == 1} <= {f"{slow_site.url}/p/0"}
    assert len(urls) > PAGES


def test_one_of_release_0_2_0_that_knows_of_items_only_their_number_goes_on(start: Start, slow_site: Site) -> None:
    attempt = start("slow", f"{slow_site.url}/p/0", cwd=WALK)
    assert kill(attempt, 30)
    path = attempt.folder / "frontier"
    state = read_frontier(attempt.folder)
    [[(request, _)]] = [state.early.items()]
    given = (attempt.folder / "items.jsonl").read_bytes()[: state.end].count(b"\n")
    [(head, blobs)] = frames(io.BytesIO(state.snapshot()))
    head["gave"] = {str(request): given}
    del head["marks"], head["child_marks"], head["facts"]["start_done"]
    path.write_bytes(frame(head, [blobs]))
    crawl = start("slow", f"{slow_site.url}/p/0", cwd=WALK, after=attempt.folder, environ={"EACH": "0"}).wait()
    assert CONTINUED in crawl.log
    assert [item["number"] for item in crawl.items] == list(range(200))


def test_secrets_in_requests_are_sealed_and_there_again(start: Start) -> None:
    secret = "sk_live_4242"
    encoded = base64.b64encode(f"user:{secret}".encode())
    with Site(pages(), delay=0.01) as site:
        attempt = start("keyed", f"{site.url}/p/0", cwd=WALK, variables={"API_KEY": secret})
        assert kill(attempt, 15)
        left = (attempt.folder / "frontier").read_bytes()
        asked = len(site.access_log)
        second = start("keyed", f"{site.url}/p/0", cwd=WALK, after=attempt.folder, variables={"API_KEY": secret})
        crawl = second.wait()
        later = site.access_log[asked:]
    assert left
    assert not [shape for shape in (secret.encode(), encoded, b"Authorization", b"/p/") if shape in left]
    assert CONTINUED in crawl.log
    assert {visit.headers.get("X-Key") for visit in later} == {f"Key {secret}"}
    assert {visit.headers.get("Authorization") for visit in later} == {f"Basic {encoded.decode()}"}


def test_what_was_sealed_with_a_variable_that_has_changed_begins_anew(start: Start, slow_site: Site) -> None:
    attempt = start("keyed", f"{slow_site.url}/p/0", cwd=WALK, variables={"API_KEY": "the old one"})
    assert kill(attempt, 15)
    new = {"API_KEY": "the new one"}
    crawl = start("keyed", f"{slow_site.url}/p/0", cwd=WALK, after=attempt.folder, variables=new).wait()
    assert "Begins anew: what attempt 1 has left" in crawl.log
    assert "the variables of the crawl have changed since" in crawl.log
    assert crawl.report["finish_reason"] == "finished"


def test_what_was_copied_in_part_is_taken_back(start: Start, slow_site: Site) -> None:
    attempt = start("plain", f"{slow_site.url}/p/0", cwd=WALK)
    assert kill(attempt, 30)
    state = read_frontier(attempt.folder)
    (attempt.folder / "items.jsonl").write_bytes(b'{"url": "of the attempt before"}\n' * 50_000)
    state.end = (attempt.folder / "items.jsonl").stat().st_size
    (attempt.folder / "frontier").write_bytes(state.snapshot())
    # as on a disk that has room for a part of it
    crawl = start("plain", f"{slow_site.url}/p/0", cwd=WALK, after=attempt.folder, file_bytes=state.end // 2).wait()
    assert "A crawl that is interrupted will begin anew" in crawl.log
    assert crawl.report["finish_reason"] == "finished"
    assert all(item.get("url") != "of the attempt before" for item in crawl.items)


def test_without_the_setting_there_is_none(start: Start, slow_site: Site) -> None:
    attempt = start("plain", f"{slow_site.url}/p/0", cwd=WALK, environ={"CRAWL_FRONTIER": "false"})
    assert kill(attempt, 15)
    assert not (attempt.folder / "frontier").exists()
