"""A type checker finds what is misspelt in a program that uses the client, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WRONG = "# wrong"
PROGRAM = """
from contextlib import aclosing, closing
from datetime import UTC, datetime
from typing import Any

from discoverybot_client import (
    AsyncClient,
    AsyncWaitTimeoutError,
    Client,
    CrawlFailedError,
    Event,
    Job,
    WaitTimeoutError,
    verify,
)
from discoverybot_client.events import JobEvent
from discoverybot_client.params import CrawlFields, EventType


def right(client: Client, newer: dict[str, Any], maybe: str | None) -> None:
    fields: CrawlFields = {"depth": 1, "fetch": {"concurrency": 2}, "dataset": {"name": "pages", "key": ["url"]}}
    client.crawl("https://example.com", spider="seo", wait=60, **fields)
    client.start_crawl("https://example.com", tags=None, params={"a": 1}, schedule_at=datetime.now(UTC))
    client.start_crawl("https://example.com", **newer)
    client.jobs(spider=maybe, status=["error", "partial"], since=datetime.now(UTC), until="2027-06-01T09:00:00Z")
    client.schedules.create("https://example.com", interval="@daily", overlap="skip", jitter=0.1).update(name=None)
    client.datasets.put("pages", key=["url"], exports=[{"to": "s3://lake", "format": "csv"}]).changes(types=["new"])
    events: list[EventType] = ["job.failed"]
    client.endpoints.create("https://example.com", events=events, filter={"tags": ["nightly"]})
    job = client.job("5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a")
    job.export_requests("requests.csv", "csv", failed=True, sort="-ms", bom=True)
    client.schedules.get("0d4f").export("items.csv", "csv", fields=["url"], q="sale", escape_formulas=False)
    pages = client.datasets.get("pages")
    pages.export("pages.csv", "csv", fields=["url"], removed=True, bom=True)
    pages.export_changes("changes.csv", "csv", since=datetime.now(UTC), fields=["url"], bom=True)
    print(job.finished_at, job.spec.params, job.attempts[0].ended_at, job.refresh().tags[0], job["newer"])
    print(client.crawl("https://example.com").require_good().spec.spider, client.start_crawl("https://a.com").spider)
    for row in client.jobs():
        print(row.spec and row.spec.params, row.attempts and row.attempts[0].ended_at)
    known: list[Job] = [job, *client.jobs()]
    print(known)
    print(client.health().checks["mongodb"].todo, client.deploy("shop").spiders, client.errors.get("5f").days[0].day)
    for run in client.schedules.get("0d4f").coming(3):
        print(run.at.astimezone(), run.local)
    for rule in client.alert_rules.list():
        rule.update(when={"measure": "failed", "runs": 3}, quiet={"since": "22:00", "until": "06:00"})
    with closing(job.follow(level="INFO")) as lines:
        print(next(lines).msg)
    try:
        job.wait(1).require_good()
    except WaitTimeoutError as late:
        print(late.job.cancel().status)
    except CrawlFailedError as failed:
        print(failed.job.id, failed.reason)


async def right_also(client: AsyncClient) -> None:
    try:
        await client.crawl("https://example.com", wait=1)
    except AsyncWaitTimeoutError as late:
        async with aclosing(late.job.follow()) as lines:
            print([line.msg async for line in lines])
        print((await late.job.cancel()).status)


def called(headers: dict[str, str], body: bytes) -> None:
    call = verify(headers, body, "whsec_")
    if call["type"] == "job.failed":
        print(call["data"]["job_id"], call["timestamp"].removesuffix("Z"), call["data"].get("reason"))
        print(call["data"]["new"])  # wrong
    elif call["type"] == "dataset.changed":
        print(call["data"].get("new"))
    elif call["type"] == "job.fialed":  # wrong
        pass
    if "event" in call and call["event"] == "job.ended":
        print(call["job_id"], call["status"])
        print(call["data"])  # wrong


def streamed(client: Client, event: JobEvent, other: Event) -> None:
    if event.name == "log":
        print(event.data["msg"].upper(), event.data.get("ts"))
        print(event.data["status"])  # wrong
    elif event.name == "gap":
        print(event.data["from"], event.data["to"])
    elif event.name == "end":
        print(event.data["status"], event.data["items_count"] + 1)
    elif event.name == "lgo":  # wrong
        pass
    for one in client.events():
        if one.name == "snapshot":
            print([job["job_id"] for job in one.data["jobs"]])
    for newer in client.stream("/newer"):
        print(newer.name == "newer", newer.data["anything"], other.data["anything"])


async def streamed_also(client: AsyncClient) -> None:
    async for event in (await client.job("5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a")).events():
        if event.name == "status":
            print(event.data["attempt"] + 1)
            print(event.data["msg"])  # wrong


def wrong(client: Client, late: WaitTimeoutError) -> None:
    client.start_crawl("https://example.com", depth="two")  # wrong
    client.start_crawl("https://example.com", nonsense=1)  # wrong
    client.crawl("https://example.com", overlap="skip")  # wrong
    client.crawl("https://example.com", fetch={"concurrent": 2})  # wrong
    client.start_crawl(["https://example.com"])  # wrong
    client.jobs(stauts=["error"])  # wrong
    client.jobs(status=["fialed"])  # wrong
    client.schedules.create("https://example.com", interval="@daily", overlap="never")  # wrong
    client.schedules.list(state="running")  # wrong
    client.datasets.put("pages", exports=[{"to": "s3://lake"}])  # wrong
    client.endpoints.create("https://example.com", events=["job.fialed"])  # wrong
    job = client.job("5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a")
    job.export_requests("requests.csv", "csv", sort="slow")  # wrong
    client.schedules.get("0d4f").export("items.csv", "csv", field=["url"])  # wrong
    client.datasets.get("pages").export("pages.csv", "csv", bom="yes")  # wrong
    client.datasets.get("pages").export_changes("changes.csv", "csv", q="sale")  # wrong
    print(job.stauts)  # wrong
    print(client.start_crawl("https://example.com").spec.params)  # wrong
    print(client.schedules.get("0d4f").next_runs)  # wrong
    print(client.datasets.get("pages").hold)  # wrong
    late.job.stop()  # wrong
    print(job.attempts[0].stauts)  # wrong
    print(job.status == "fialed")  # wrong
    client.alert_rules.create("failed", {"measure": "fialed"})  # wrong
    print(client.health().checks["mongodb"].stauts)  # wrong
    client.keys.create("ada", ["root"])  # wrong


async def wrong_also(client: AsyncClient, late: AsyncWaitTimeoutError) -> None:
    late.job.cancel().status  # wrong
    await client.start_crawl("https://example.com", depth="two")  # wrong
    client.jobs(stauts=["error"])  # wrong
"""


def test_what_is_wrong_is_found_and_nothing_else(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", tmp_path / "cache", program.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith(WRONG)}
    assert found == wrong, done.stdout + done.stderr
