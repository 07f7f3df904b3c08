"""Submit, follow, items and cancel with a client that openapi-python-client generates from `/openapi.json`."""

from __future__ import annotations

import sys

from discoverybot_api import Client
from discoverybot_api.api.crawls import create_crawl
from discoverybot_api.api.jobs import cancel_job, get_job, get_job_log_lines, list_job_items
from discoverybot_api.errors import UnexpectedStatus
from discoverybot_api.models import CrawlReceipt, CrawlRequest, ItemsPage, JobDetail, JobStatus, LogLinesView
from discoverybot_api.types import UNSET, Unset
from httpx import HTTPError, Timeout

ENDED = {JobStatus.FINISHED, JobStatus.PARTIAL, JobStatus.ERROR, JobStatus.CANCELLED}


def start(client: Client, site: str, *, ignore_cache: bool = False) -> str:
    crawl = CrawlRequest(user_id="me", spider="seo", start_urls=[site], depth=1, ignore_cache=ignore_cache)
    receipt = create_crawl.sync(client=client, body=crawl)
    if not isinstance(receipt, CrawlReceipt):  # a Problem, with `error.code`
        raise SystemExit(receipt)
    return receipt.job_id


def follow(client: Client, job_id: str) -> JobDetail:
    position: str | Unset = UNSET
    while True:
        job = get_job.sync(job_id, client=client, wait=2)  # 2 s, or until it has ended
        page = get_job_log_lines.sync(job_id, client=client, from_=position)
        # an id of a schedule would be answered with a ScheduleJobView
        if not isinstance(job, JobDetail) or not isinstance(page, LogLinesView):
            raise SystemExit(job)
        for line in page.lines:
            print(line.msg)
            position = line.id
        if job.status in ENDED and page.next_ is None:
            return job


def show_items(client: Client, job_id: str) -> None:
    after: str | Unset | None = UNSET
    while after is not None:
        page = list_job_items.sync(job_id, client=client, limit=1000, after=after)
        if not isinstance(page, ItemsPage):
            raise SystemExit(page)
        for item in page.items:
            print(item["url"])
        after = page.next_


def main(gateway: str, site: str) -> None:
    # with a key: AuthenticatedClient(gateway, key, …)
    with Client(gateway, timeout=Timeout(60), raise_on_unexpected_status=True) as client:
        job_id = start(client, site)
        job = follow(client, job_id)
        print(job.status, job.items_count)
        show_items(client, job_id)
        cancel_job.sync(start(client, site, ignore_cache=True), client=client)


gateway, site = sys.argv[1:]
try:
    main(gateway, site)
except (HTTPError, UnexpectedStatus, ValueError, KeyError, TypeError) as error:
    # a proxy before the gateway answers with a page, or with JSON that has other fields
    raise SystemExit(f"no answer of a gateway: {error!r}") from error
