"""What clients of Firecrawl get as answers, over plain HTTP. The test plays the worker and the node."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx2
import pytest
from integration.web.board import Board, Serve, open_board
from jobs import make_job
from stack import wait_until

from gateway.access.key_store import KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.contract.crawl import CrawlSpec
from gateway.contract.records import SpiderInfo
from gateway.jobs.job import Job, JobStatus, KeyBudget
from gateway.projects.eggs import SpiderStore
from gateway.requests.store import RequestChunk, RequestStore
from gateway.settings import Settings

URL = "https://example.com/docs"
#: A part of the schema of `pages`' parameters, enough to check tags. The whole is tested with the spider.
OBJECT = {
    "type": "object",
    "properties": {"include_tags": {"type": "array", "items": {"type": "string", "format": "css-selector"}}},
}
PAGE = {
    "url": URL,
    "source_url": "https://example.com/old",
    "status": 200,
    "content_type": "text/html",
    "title": "Docs",
    "markdown": "# Docs",
    "raw_html": "<h1>Docs</h1>",
    "links": ["https://example.com/docs/a"],
}


class Firecrawl(NamedTuple):
    board: Board
    keys: dict[str, str]

    def call(self, method: str, path: str, body: Any = None, who: str = "anne", **headers: str) -> httpx2.Response:
        given = {"Authorization": f"Bearer {self.keys[who]}", **headers}
        return self.board.http.request(method, path, json=body, headers=given)

    def told(self, method: str, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
        answer = self.call(method, path, body, **more)
        assert answer.status_code == httpx2.codes.OK, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def waiting(self, tag: str, number: int = 1) -> list[Job]:
        """The jobs with this tag that have not ended, once there are so many."""

        def found() -> list[Job] | None:
            wanted = {"tags": tag, "status": "pending"}
            ids = [one["_id"] for one in self.board.database["jobs"].find(wanted, {"_id": 1})]
            return [self.board.jobs.get(one) for one in ids] if len(ids) == number else None

        return wait_until(found, what=f"{number} jobs")


@pytest.fixture(scope="module")
def door(serve: Serve, settings: Settings) -> Iterator[Firecrawl]:
    with open_board(serve, settings, f"firecrawl-{uuid.uuid4().hex[:8]}") as board:
        names = ("pages", "sitemap", "jobs")
        SpiderStore(board.database).publish(
            "n1", [SpiderInfo(project="default", name=name, params_schema=OBJECT) for name in names]
        )
        issue = KeyIssue(KeyStore(board.database))
        who = {"anne": ("anne", Scope.CRAWL), "bert": ("bert", Scope.AGENT), "reader": ("anne", Scope.READ)}
        keys = {name: str(issue.issue(user, [scope]).token) for name, (user, scope) in who.items()}
        yield Firecrawl(board, keys)


def in_background(work: Any) -> Any:
    """Call `work` in a thread. Returns a function that waits for the result and returns it."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()

    def answer() -> Any:
        thread.join(60)
        return found[0]

    return answer


def test_a_page_is_given_once_its_job_has_ended(door: Firecrawl) -> None:
    body = {"url": f"{URL}?{uuid.uuid4().hex}", "formats": ["markdown", {"type": "rawHtml"}]}
    answer = in_background(lambda: door.told("POST", "/v2/scrape", body))
    (job,) = door.waiting("firecrawl-scrape")
    assert (job.user_id, job.spec.spider, job.spec.depth, job.spec.max_pages) == ("anne", "pages", 0, 1)
    assert job.spec.params == {"formats": ["markdown", "raw_html"], "main_content": True}
    door.board.end(job, JobStatus.FINISHED, PAGE)
    told = answer()
    assert told.keys() == {"success", "data"}
    assert told["data"] == {
        "markdown": "# Docs",
        "rawHtml": "<h1>Docs</h1>",
        "links": ["https://example.com/docs/a"],
        "metadata": {
            "title": "Docs",
            "sourceURL": "https://example.com/old",
            "url": URL,
            "statusCode": 200,
            "contentType": "text/html",
            "scrapeId": job.id,
        },
    }
    # by default the clients take an answer that is up to four hours old; with `maxAge` 0 they take none
    assert door.told("POST", "/v2/scrape", {**body, "maxAge": 14_400_000}) == told
    late = door.call("POST", "/v2/scrape", {**body, "maxAge": 0, "timeout": 1})
    assert (late.status_code, late.json()["code"]) == (408, "SCRAPE_TIMEOUT")
    (anew,) = door.waiting("firecrawl-scrape")
    assert late.json()["details"] == {"job_id": anew.id}
    door.call("POST", f"/jobs/{anew.id}/cancel")


def test_who_has_spent_a_budget_is_told_when_to_come_again(door: Firecrawl) -> None:
    keys = KeyIssue(KeyStore(door.board.database))
    door.keys["poor"] = str(keys.issue("cleo", [Scope.AGENT], budget=KeyBudget(pages=5)).token)
    answer = door.call("POST", "/v2/crawl", {"url": URL, "sitemap": "skip", "limit": 6}, who="poor")
    assert (answer.status_code, answer.json()["code"]) == (429, "budget_spent")
    assert f"ask again in {answer.headers['Retry-After']} seconds" in answer.json()["error"]


def test_a_page_that_cannot_be_fetched_says_why(door: Firecrawl) -> None:
    body = {"url": f"{URL}?{uuid.uuid4().hex}"}
    answer = in_background(lambda: door.call("POST", "/v2/scrape", body))
    (job,) = door.waiting("firecrawl-scrape")
    door.board.end(job, JobStatus.ERROR)
    told = answer()
    assert told.status_code == 424
    details = {"reason": "completed", "job_id": job.id}
    assert told.json() == {"success": False, "code": "SCRAPE_FAILED", "error": "3 pages", "details": details}


def test_a_map_is_made_of_a_page_and_of_sitemaps(door: Firecrawl) -> None:
    site = f"https://{uuid.uuid4().hex}.example"
    answer = in_background(lambda: door.told("POST", "/v2/map", {"url": f"{site}/", "search": "docs", "limit": 2}))
    jobs = {job.spec.spider: job for job in door.waiting("firecrawl-map", 2)}
    links = [f"{site}/docs/a?x=1", f"{site}/blog", "https://elsewhere.example/docs"]
    door.board.end(jobs["pages"], JobStatus.FINISHED, {"url": f"{site}/", "title": "All docs", "links": links})
    named = [{"url": f"{site}/docs/{name}"} for name in "abc"]
    door.board.end(jobs["sitemap"], JobStatus.FINISHED, *named)
    found = answer()["links"]
    assert [(one["url"], one.get("title")) for one in found] == [(f"{site}/", "All docs"), (f"{site}/docs/a", None)]


def test_a_crawl_is_what_its_options_say(door: Firecrawl) -> None:
    options = {"formats": ["html"], "onlyMainContent": False, "excludeTags": [".ad"], "headers": {"User-Agent": "me"}}
    body = {
        "url": URL,
        "includePaths": ["^/docs"],
        "maxDiscoveryDepth": 2,
        "sitemap": "skip",
        "limit": 7,
        "crawlEntireDomain": True,
        "delay": 1.5,
        "maxConcurrency": 500,
        "ignoreRobotsTxt": True,
        "scrapeOptions": options,
        "deduplicateSimilarURLs": True,
        "origin": "js-sdk@4",
    }
    told = door.told("POST", "/v2/crawl", body)
    assert told == {"success": True, "id": told["id"], "url": f"/v2/crawl/{told['id']}", "invalidURLs": None}
    spec = door.board.jobs.get(told["id"]).spec
    assert (spec.depth, spec.max_items, spec.max_pages, spec.ignore_cache) == (2, 7, 7, True)
    assert spec.params == {
        "formats": ["html"], "main_content": False, "exclude_tags": [".ad"], "include": ["^/docs"], "exclude": [],
        "match": "path", "sitemap": "skip", "ignore_query": False, "below_start": False, "subdomains": False,
        "obey_robots": False,
    }  # fmt: skip
    assert spec.fetch is not None
    assert (spec.fetch.user_agent, spec.fetch.min_pause_seconds, spec.fetch.concurrency) == ("me", 1.5, 64)
    again = door.told("POST", "/v2/crawl", body)
    assert again["id"] != told["id"], "each crawl is one of its own"
    key = {"x-idempotency-key": uuid.uuid4().hex}
    same = [door.told("POST", "/v2/crawl", body, **key)["id"] for _ in range(2)]
    assert same[0] == same[1]
    active = {one["id"] for one in door.told("GET", "/v2/crawl/active")["crawls"]}
    assert active >= {told["id"], again["id"], same[0]}
    queue = door.told("GET", "/v2/team/queue-status")
    assert queue["waitingJobsInQueue"] >= 3
    for one in active:
        assert door.told("DELETE", f"/v2/crawl/{one}") == {"success": True, "status": "cancelled"}
    assert door.told("GET", "/v2/crawl/active")["crawls"] == []


def test_pages_of_a_crawl_come_page_by_page_and_end(door: Firecrawl) -> None:
    job_id = door.told("POST", "/v2/crawl", {"url": URL})["id"]
    waits = door.told("GET", f"/v2/crawl/{job_id}")
    assert (waits["status"], waits["total"], waits["data"], "next" in waits) == ("scraping", 0, [], False)
    items = [{**PAGE, "url": f"{URL}/{number}", "markdown": "x" * 100} for number in range(250)]
    door.board.end(door.board.jobs.get(job_id), JobStatus.PARTIAL, *items)
    address, found = f"/v2/crawl/{job_id}", list[str]()
    for size in (100, 100, 50):
        told = door.told("GET", address)
        assert (told["status"], told["total"], told["completed"], told["creditsUsed"]) == ("completed", *3 * (250,))
        assert len(told["data"]) == size
        found += [one["metadata"]["url"] for one in told["data"]]
        address = told.get("next")
        assert address is None or address.startswith(f"/v2/crawl/{job_id}?cursor=")
    assert (address, found) == (None, [item["url"] for item in items])
    assert door.call("DELETE", f"/v2/crawl/{job_id}").status_code == 409, "it has ended"
    assert door.call("GET", f"/v2/crawl/{job_id}?cursor=nonsense").status_code == 400


def test_large_pages_are_given_in_parts(door: Firecrawl) -> None:
    job_id = door.told("POST", "/v2/batch/scrape", {"urls": [URL]})["id"]
    items = [{**PAGE, "raw_html": "x" * 3_000_000} for _ in range(8)]
    door.board.end(door.board.jobs.get(job_id), JobStatus.FINISHED, *items)
    address, sizes = f"/v2/batch/scrape/{job_id}", list[int]()
    while address:
        answer = door.call("GET", address)
        assert len(answer.content) < 17 << 20
        sizes.append(len(answer.json()["data"]))
        address = answer.json().get("next")
    assert sum(sizes) == 8
    assert len(sizes) > 1


def test_errors_and_what_robots_forbid_are_told_apart(door: Firecrawl) -> None:
    job_id = door.told("POST", "/v2/batch/scrape", {"urls": [URL]})["id"]
    door.board.end(door.board.jobs.get(job_id), JobStatus.PARTIAL)
    line = (
        b'{"url": "https://a.example/", "failed": true, "code": "site_timeout", "reason": "late", "at": 1000}\n'
        b'{"url": "https://a.example/robots.txt", "failed": true, "code": "site_timeout", "at": 1000}\n'
        b'{"url": "https://b.example/", "code": "robots_forbidden"}\n{"url": "https://c.example/", "status": 404}\n'
    )
    RequestStore(door.board.database).append(RequestChunk(job_id, 1, 0, len(line), line))
    told = door.told("GET", f"/v2/batch/scrape/{job_id}/errors")
    failure = {"id": f"{job_id}-1", "url": "https://a.example/", "code": "site_timeout", "error": "late"}
    assert told == {
        "errors": [{**failure, "timestamp": "1970-01-01T00:00:01.000Z"}],
        "robotsBlocked": ["https://b.example/"],
    }


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("scrape", {"url": URL, "actions": [{"type": "wait"}]}, "actions"),
        ("scrape", {"url": URL, "formats": ["markdown", {"type": "json", "prompt": "x"}]}, "formats.1"),
        ("scrape", {"url": URL, "formats": ["screenshot"]}, "formats.0"),
        ("scrape", {"url": URL, "mobile": True}, "mobile"),
        ("scrape", {"url": URL, "proxy": "stealth"}, "proxy"),
        # no node here has a browser
        ("scrape", {"url": URL, "waitFor": 100}, "params.render"),
        ("scrape", {"url": URL, "includeTags": ["<<"]}, "params"),
        ("scrape", {"url": URL, "headers": {"Host": "x"}}, "fetch.headers"),
        ("scrape", {"url": "http://127.0.0.1.nip.io.invalid:0/"}, "start_urls.0"),
        ("scrape", {}, "url"),
        ("crawl", {"url": URL, "prompt": "x"}, "prompt"),
        ("crawl", {"url": URL, "webhook": "https://example.com/"}, "webhook"),
        ("crawl", {"url": URL, "allowExternalLinks": True}, "allowExternalLinks"),
        ("crawl", {"url": URL, "limit": 0}, "limit"),
        ("crawl", {"url": URL, "scrapeOptions": {"location": {"country": "DE"}}}, "scrapeOptions.location"),
        ("batch/scrape", {"urls": []}, "urls"),
        ("batch/scrape", {"urls": [URL] * 1001}, "urls"),
        ("batch/scrape", {"urls": [URL], "appendToId": "x"}, "appendToId"),
        ("batch/scrape", {"urls": ["nonsense"], "ignoreInvalidURLs": False}, "start_urls.0"),
        ("batch/scrape", {"urls": ["nonsense"]}, "start_urls"),
        ("map", {"url": URL, "limit": 100_001}, "limit"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(door: Firecrawl, path: str, body: Any, field: str) -> None:
    answer = door.call("POST", f"/v2/{path}", body)
    told = answer.json()
    assert answer.status_code == 400, told
    assert (told["success"], told["code"]) == (False, "invalid_request")
    assert told["details"]["field"].startswith(field)
    assert told["error"].startswith(field)


def test_all_else_that_they_have_is_refused_with_a_sentence(door: Firecrawl) -> None:
    for method, path in (
        ("POST", "/v2/search"),
        ("GET", "/v2/scrape"),
        ("POST", "/v1/scrape"),
        ("PATCH", "/v2/crawl"),
    ):
        answer = door.call(method, path, {"query": "x"})
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_SUPPORTED")
        assert f"{method} {path} is not possible here" in answer.json()["error"]
    unknown = door.board.http.post("/v2/scrape", json={"url": URL})
    assert (unknown.status_code, unknown.json()["code"]) == (401, "key_required")
    large = door.call("POST", "/v2/scrape", {"url": URL, "origin": "x" * 300_000})
    assert (large.status_code, large.json()["code"]) == (413, "body_too_large")


def test_jobs_are_their_users_and_of_this_spider(door: Firecrawl) -> None:
    job_id = door.told("POST", "/v2/crawl", {"url": URL})["id"]
    other = make_job(user_id="anne", spec=CrawlSpec(spider="jobs", start_urls=(URL,)))
    door.board.jobs.insert(other)
    for method, path in (("GET", ""), ("GET", "/errors"), ("DELETE", "")):
        for who, named in (("bert", job_id), ("anne", other.id), ("anne", "nonsense"), ("anne", "0" * 32)):
            answer = door.call(method, f"/v2/crawl/{named}{path}", who=who)
            assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found"), (method, path, who)
    assert door.call("POST", "/v2/crawl", {"url": URL}, who="reader").json()["code"] == "scope_missing"
    # an agent's key may start crawls, but may not say how pages are fetched
    assert door.call("POST", "/v2/crawl", {"url": URL}, who="bert").is_success
    assert door.call("POST", "/v2/crawl", {"url": URL, "delay": 1}, who="bert").json()["code"] == "scope_missing"


def test_what_was_done_is_in_the_audit_trail(door: Firecrawl) -> None:
    job_id = door.told("POST", "/v2/crawl", {"url": URL})["id"]
    door.told("DELETE", f"/v2/crawl/{job_id}")

    def routes() -> list[str] | None:
        found = door.board.database["audit"].find({"resources.job_id": job_id})
        entries = sorted((one["route"], one["resources"]["tool"]) for one in found)
        return [f"{route} {tool}" for route, tool in entries] if len(entries) == 2 else None

    expected = ["/crawl firecrawl", "/jobs/{job_id}/cancel firecrawl"]
    assert wait_until(routes, what="two entries") == expected


def test_a_websocket_is_accepted_and_closed_so_that_clients_ask_instead(door: Firecrawl) -> None:
    url = httpx2.URL(str(door.board.http.base_url))
    lines = (
        "GET /v2/crawl/x HTTP/1.1", f"Host: {url.host}", "Connection: Upgrade", "Upgrade: websocket",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: db_a_b",
    )  # fmt: skip
    with socket.create_connection((url.host, url.port or 80), timeout=10) as connection:
        connection.sendall("\r\n".join((*lines, "", "")).encode())
        head, _, frame = connection.recv(4096).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        # the example of RFC 6455
        assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
        assert b"Sec-WebSocket-Protocol: db_a_b" in head
        assert frame == b"\x88\x02\x03\xe8"
        connection.sendall(b"\x88\x82\x00\x00\x00\x00\x03\xe8")
        assert connection.recv(16) == b""
