"""What an attempt may take of its key's budget: sites see no more, and its report says what it has taken."""

from __future__ import annotations

from typing import Any

from sites.server import Reply, Site, html, links

from gateway.contract.outbox import BUDGET_BYTES, SPENT

from .conftest import Crawl, Run, Start
from .test_frontier import WALK, kill

PAGE = 100_000


def spent(crawl: Crawl) -> dict[str, Any]:
    stats = crawl.report["stats"]
    return {name.removeprefix(SPENT): stats[name] for name in stats if name.startswith(SPENT)}


def test_no_page_more_is_asked_for_however_many_start_urls_there_are(run: Run, site: Site) -> None:
    urls = [f"{site.url}/tree/100/{number}" for number in range(50)]
    crawl = run("seo", *urls, allowance={"pages": 7}, max_pages=40)
    assert (len(site.paths()), spent(crawl)) == (7, {"pages": 7})
    assert crawl.report["finish_reason"] == "closespider_pagecount"


def test_max_pages_stays_the_limit_where_the_budget_has_more(run: Run, site: Site) -> None:
    crawl = run("seo", f"{site.url}/tree/30", allowance={"pages": 100}, max_pages=4)
    assert (len(site.paths()), spent(crawl)) == (4, {"pages": 4})


def test_an_attempt_that_goes_on_has_its_own_allowance_and_counts_its_own_pages(start: Start) -> None:
    """What the attempt before has taken was taken off."""
    with Site({"/p/0": links(*(f"/p/{number}" for number in range(1, 40)))}, delay=0.05) as site:
        site.pages |= {f"/p/{number}": html("page") for number in range(1, 40)}
        first = start("plain", f"{site.url}/p/0", cwd=WALK, allowance={"pages": 30})
        assert kill(first, 3)
        # the site may not have noted yet what the first has asked for
        told = {"allowance": {"pages": 5}, "fetch": {"user_agent": "second"}}
        crawl = start("plain", f"{site.url}/p/0", cwd=WALK, after=first.folder, **told).wait()
        visits = [one for one in site.access_log if one.headers["User-Agent"] == "second"]
        assert len([one for one in visits if one.path != "/robots.txt"]) == 5
    assert spent(crawl)["pages"] == 5
    assert crawl.progress["requested_pages"] > 5


def test_no_further_host_is_asked_not_even_for_its_robots_txt(run: Run) -> None:
    """By a start URL, a link or a redirect; in any spelling of a host's name."""
    with Site() as other:
        elsewhere = f"http://localhost:{other.port}"
        page = links(f"{elsewhere}/a", f"http://LOCALHOST:{other.port}/b", f"http://localhost.:{other.port}/c", "/d")
        away = Reply(status=302, headers={"Location": f"{elsewhere}/away"})
        with Site({"/": page, "/d": html("page"), "/away": away}) as site:
            params = {"links": True, "all_hosts": True}
            crawl = run(
                "plain", site.url, f"{site.url}/away", elsewhere, cwd=WALK, allowance={"hosts": 1}, params=params
            )
            assert {"/", "/d", "/away"} <= set(site.paths())
        assert other.access_log == []
    assert spent(crawl)["hosts"] == 1


def test_bytes_are_cut_off_where_they_end(run: Run) -> None:
    most, at_once = 450_000, 16
    pages = {f"/{number}": html("x" * PAGE) for number in range(40)}
    with Site({"/": links(*pages), **pages}) as site:
        crawl = run("plain", site.url, cwd=WALK, allowance={"bytes": most})
    assert crawl.report["finish_reason"] == BUDGET_BYTES
    assert most < spent(crawl)["bytes"] <= most + at_once * (64 << 10)
    assert crawl.report["stats"]["downloader/response_bytes"] <= spent(crawl)["bytes"] + 40_000
