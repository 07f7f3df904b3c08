"""Firecrawl's own Python client at our door, blocking and not. Run by `tests/e2e/test_firecrawl_clients.py`."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

from firecrawl import AsyncFirecrawl, Firecrawl
from firecrawl.v2.types import PaginationConfig
from firecrawl.v2.utils.error_handler import BadRequestError, FirecrawlError, UnauthorizedError

GATEWAY, KEY, SITE = sys.argv[1:4]
START = f"{SITE}/docs/"
client = Firecrawl(api_key=KEY, api_url=GATEWAY)


def refusal(kind: type[Exception], call: Any) -> str:
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("it was not refused")


def pages() -> None:
    page = client.scrape(f"{SITE}/docs/1", formats=["markdown", "html", "rawHtml", "links"])
    assert page.markdown.startswith("# Page 1\n"), page
    assert (page.metadata.title, page.metadata.status_code) == ("Page 1", 200)
    assert f"{SITE}/docs/3" in page.links
    assert "<h1>Page 1</h1>" in page.html
    assert "<nav>" in page.raw_html
    assert client.scrape(f"{SITE}/nowhere").metadata.error == "HTTP 404 Not Found"
    assert "robots.txt" in refusal(FirecrawlError, lambda: client.scrape(f"{SITE}/private/"))
    assert "actions" in refusal(BadRequestError, lambda: client.scrape(SITE, actions=[{"type": "wait"}]))
    assert "not possible here" in refusal(FirecrawlError, lambda: client.search("x"))
    stranger = Firecrawl(api_key="db_0_0", api_url=GATEWAY)
    refusal(UnauthorizedError, lambda: stranger.scrape(SITE))
    found = [link.url for link in client.map(START).links]
    assert {START, f"{SITE}/docs/0", f"{SITE}/docs/hidden"} <= set(found), found
    assert [link.url for link in client.map(START, search="hidden").links] == [f"{SITE}/docs/hidden"]


def crawls() -> None:
    job = client.crawl(START, limit=130, poll_interval=1)
    assert (job.status, job.completed, job.total, len(job.data)) == ("completed", 130, 130, 130), job.status
    assert len({page.metadata.url for page in job.data}) == 130
    first = client.get_crawl_status(job.id, PaginationConfig(auto_paginate=False))
    assert (len(first.data), bool(first.next)) == (100, True)
    second = client.get_crawl_status_page(first.next)
    assert (len(second.data), second.next) == (30, None)
    wide = client.crawl(START, limit=20, crawl_entire_domain=True, include_paths=["^/docs/$", "^/private"])
    assert client.get_crawl_errors(wide.id).robots_blocked == [f"{SITE}/private/"]
    slow = client.start_crawl(START, delay=1, max_concurrency=1)
    assert slow.id in {one.id for one in client.get_active_crawls().crawls}
    assert client.get_queue_status().jobs_in_queue > 0
    assert client.cancel_crawl(slow.id)
    assert client.get_concurrency().concurrency >= 0
    assert client.get_credit_usage().remaining_credits > 0
    assert client.get_token_usage().remaining_tokens > 0
    assert client.cancel_crawl(job.id) is False


def batches() -> None:
    urls = [f"{SITE}/docs/{number}" for number in range(15)]
    job = client.batch_scrape([*urls, "http://127.0.0.1:9/"], formats=["markdown"], poll_interval=1)
    assert (job.status, sorted(page.metadata.source_url for page in job.data)) == ("completed", sorted(urls))
    started = [client.start_batch_scrape([*urls, "http://"], idempotency_key="the-same") for _ in range(2)]
    assert started[0].id == started[1].id
    assert started[0].invalid_urls == ["http://"]
    failed = client.start_batch_scrape([*urls, "http://127.0.0.1:9/"])
    while client.get_batch_scrape_status(failed.id).status == "scraping":
        time.sleep(0.5)
    (error,) = client.get_batch_scrape_errors(failed.id).errors
    assert (error.url, error.code) == ("http://127.0.0.1:9/", "site_unreachable")


def watchers() -> None:
    started, done, seen = client.start_crawl(START, limit=20), threading.Event(), []
    watcher = client.watcher(started.id, kind="crawl", poll_interval=1, timeout=60)
    watcher.add_listener(seen.append)
    watcher.add_event_listener("done", lambda _: done.set())
    watcher.start()
    assert done.wait(60)
    assert (seen[-1].status, len(seen[-1].data)) == ("completed", 20)


async def without_blocking() -> None:
    other = AsyncFirecrawl(api_key=KEY, api_url=GATEWAY)
    assert (await other.scrape(f"{SITE}/docs/2")).markdown.startswith("# Page 2\n")
    job = await other.crawl(url=START, limit=120, poll_interval=1)
    assert (job.status, len(job.data)) == ("completed", 120)
    batch = await other.batch_scrape([f"{SITE}/docs/1"], poll_interval=1)
    assert (batch.status, len(batch.data)) == ("completed", 1)
    assert (await other.map(START)).links
    started = await other.start_crawl(url=START, limit=20)
    seen = [one async for one in other.watcher(started.id, kind="crawl", poll_interval=1, timeout=60)]
    last = seen[-1]
    assert (last.status, len(last.data)) == ("completed", 20)
    slow = await other.start_crawl(url=START, delay=1, max_concurrency=1)
    assert slow.id in {one.id for one in (await other.active_crawls()).crawls}
    assert await other.cancel_crawl(slow.id)
    assert (await other.get_crawl_errors(job.id)).errors == []
    assert (await other.get_queue_status()).jobs_in_queue >= 0


def through_kills() -> None:
    """Prints the id of a crawl, and once it has ended how many pages it has given, and how many of them differ."""
    started = client.start_crawl(START, max_concurrency=2)
    sys.stdout.write(f"{started.id}\n")
    sys.stdout.flush()
    while True:
        try:
            job = client.get_crawl_status(started.id)
        except (FirecrawlError, OSError):  # the gateway is killed as well
            time.sleep(0.5)
            continue
        if job.status != "scraping":
            break
        time.sleep(0.5)
    urls = [page.metadata.url for page in job.data]
    sys.stdout.write(f"{job.status} {len(urls)} {len(set(urls))}\n")


if sys.argv[4:] == ["kills"]:
    through_kills()
else:
    pages()
    crawls()
    batches()
    watchers()
    asyncio.run(without_blocking())
    sys.stdout.write("all passed\n")
