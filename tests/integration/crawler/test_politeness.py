"""Pages are fetched as whoever asked for the crawl wants it: by whom, with what, by which way, and how hastily."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

from sites.forward_proxy import PASSWORD, forward_proxy
from sites.server import Site, Visit, html, links

from .conftest import Run, Start

SECRETS = {"headers": {"X-Key": "k3y", "Authorization": "Bearer t0ken"}, "cookies": {"session": "c00kie"}}
#: What a busy machine may be late by; nothing here is ever early.
LATE = 1.0


def wait_until(true: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def gaps(site: Site) -> list[float]:
    moments = sorted(visit.at for visit in site.access_log)
    return [later - earlier for earlier, later in pairwise(moments)]


def told_secrets(visit: Visit) -> bool:
    cookie, key = visit.headers.get("Cookie"), visit.headers.get("X-Key")
    assert (cookie is None) == (key is None) == (visit.headers.get("Authorization") is None)
    return (cookie, key) == ("session=c00kie", "k3y")


def test_headers_and_cookies_stay_at_the_start_urls_hosts_wherever_redirects_and_links_lead(run: Run) -> None:
    with Site(host="127.0.0.2") as other, Site() as site:
        other.pages = {
            "/linked": html("linked"),
            "/landed": links(f"{site.url}/back"),
            "/via": links(),
        }
        site.pages = {
            "/": links("/b", f"{other.url}/linked", f"/redirect-to?{other.url}/via"),
            "/b": html("b"),
            "/back": html("back"),
        }
        away = f"{site.url}/redirect-to?{other.url}/landed"
        crawl = run("seo", site.url, away, depth=1, fetch=SECRETS, params={"check_external": True})
        assert crawl.report["finish_reason"] == "finished"
        assert {"/", "/b", "/back"} <= set(site.paths())
        assert "/landed" in other.paths()
        assert len(other.access_log) >= 2
        assert all(told_secrets(visit) for visit in site.access_log)
        assert not any(told_secrets(visit) for visit in other.access_log)
    everything = b"".join(path.read_bytes() for path in crawl.folder.iterdir() if path.name != "spec.json")
    assert not [secret for secret in (b"k3y", b"t0ken", b"c00kie") if secret in everything], "told in a file"


def test_the_user_agent_is_the_one_that_robots_txt_is_asked_about(run: Run) -> None:
    robots = "User-agent: OtherBot\nDisallow: /b\n\nUser-agent: *\nDisallow: /a"
    agent = "OtherBot/1.0 (+https://example.org/é)"
    with Site({"/": links("/a", "/b"), "/a": html("a"), "/b": html("b")}, robots=robots) as site:
        run("seo", site.url, depth=1, fetch={"user_agent": agent})
        assert sorted(site.paths()) == ["/", "/a"]
        sent = {visit.headers["User-Agent"] for visit in site.access_log}
        assert sent == {agent}, "also to robots.txt"
        run("seo", site.url, depth=1, fetch={"obey_robots": False})
        assert sorted(site.paths()) == ["/", "/", "/a", "/a", "/b"]


def test_all_who_wait_for_one_robots_txt_are_held_to_it(run: Run) -> None:
    with Site(robots="User-agent: *\nDisallow: /tree") as site:
        crawl = run("seo", *(f"{site.url}/tree/1/{number}" for number in range(8)), f"{site.url}/status/404", depth=0)
        assert site.paths() == ["/status/404"]
    assert crawl.report["stats"]["robotstxt/forbidden"] == 8


def test_every_request_goes_through_the_proxy_whose_password_nobody_is_told(run: Run) -> None:
    with Site({"/": links("/a", "/redirect/1"), "/a": html("a")}) as site, forward_proxy() as proxy:
        crawl = run("seo", site.url, depth=1, fetch={"proxy": proxy.url})
        assert crawl.progress["completed_pages"] == 3
        assert sorted(proxy.passed) == sorted(f"{site.url}{visit.path}" for visit in site.access_log)
        assert f"{site.url}/robots.txt" in proxy.passed
        assert all("Proxy-Authorization" not in visit.headers for visit in site.access_log)
    everything = b"".join(path.read_bytes() for path in crawl.folder.iterdir() if path.name != "spec.json")
    assert PASSWORD.encode() not in everything


def test_a_proxy_that_may_not_be_reached_is_not(run: Run, site: Site) -> None:
    with Site(host="127.0.0.2") as inside:
        fetch = {"proxy": f"http://127.0.0.2:{inside.port}"}
        crawl = run("seo", site.url, depth=0, fetch=fetch, environ={"CRAWL_ALLOW_NETWORKS": "127.0.0.1/32"})
        assert inside.access_log == site.access_log == []
    assert "is not a public address" in crawl.report["errors"][0]["reason"]


def test_between_two_requests_to_a_host_lies_a_pause_drawn_from_between_the_bounds(run: Run) -> None:
    with Site() as site, Site(host="127.0.0.2") as other:
        fetch = {"min_pause_seconds": 0.15, "max_pause_seconds": 0.4}
        run("seo", f"{site.url}/tree/5", f"{other.url}/tree/3", depth=1, fetch=fetch)
        for at, visits in ((site, 7), (other, 5)):
            assert len(at.access_log) == visits
            # what arrives late is nearer to what follows
            assert 0.15 - 0.05 <= median(gaps(at)) <= 0.4 + LATE, gaps(at)
            assert sum(gaps(at)) >= 0.15 * len(gaps(at)) - 0.3, gaps(at)
        both = gaps(site) + gaps(other)
        assert max(both) - min(both) > 0.05, "they are not all alike"


def test_a_crawl_that_is_asked_to_stop_does_not_sit_out_its_pauses(start: Start) -> None:
    fetch = {"min_pause_seconds": 600, "obey_robots": False}
    with Site() as site:
        attempt = start("seo", f"{site.url}/tree/20", fetch=fetch, environ={"CRAWL_STOP_GRACE": "50"})
        wait_until(lambda: len(site.access_log) == 1)
        began = time.monotonic()
        attempt.process.send_signal(signal.SIGTERM)
        crawl = attempt.wait()
        assert time.monotonic() - began < 20, "not even half of the grace"
    assert crawl.report["finish_reason"] == "shutdown"
    assert crawl.progress["errors_count"] == 0


def test_no_more_requests_are_under_way_at_once_than_allowed_and_as_many_as_that(run: Run) -> None:
    with Site(delay=0.3) as few:
        run("seo", f"{few.url}/tree/6", depth=1, fetch={"concurrency": 2, "obey_robots": False})
        moments = sorted(visit.at for visit in few.access_log)
        # each takes 0.3 s
        assert all(third - first >= 0.28 for first, third in zip(moments, moments[2:], strict=False))
    with Site(delay=4.0) as many:
        urls = [f"{many.url}/tree/1/{number}" for number in range(12)]
        run("seo", *urls, depth=0, fetch={"concurrency": 12, "obey_robots": False})
        assert gaps(many)
        assert sum(gaps(many)) < 4.0, "all twelve before the first was answered"


def test_statuses_are_tried_again_that_are_asked_for_and_no_others(run: Run) -> None:
    with Site() as site:
        urls = [f"{site.url}/status/{status}" for status in (404, 418, 503)]
        run("seo", *urls, depth=0, fetch={"retry_codes": [404, 418]})
        assert [site.hits(f"/status/{status}") for status in (404, 418, 503)] == [3, 3, 1]


def test_waiting_for_its_turn_is_no_time_out_and_costs_no_page(run: Run) -> None:
    with Site() as site:
        environ = {"CRAWL_MAX_PAGE_SECONDS": "1"}
        fetch = {"rate_limit": "5/s"}
        crawl = run("seo", f"{site.url}/tree/30", max_pages=9, fetch=fetch, environ=environ)
        assert crawl.progress["completed_pages"] == 9
        assert crawl.progress["errors_count"] == 0
        assert len(site.access_log) == 10
        # the first may have been late
        assert sum(gaps(site)) >= 9 / 5 - 0.8
