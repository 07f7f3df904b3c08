"""The Python client against the whole platform, on a way that is cut again and again."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from relay import Connection, Relay
from sites.server import Site
from stack import ROOT, Stack, wait_until

from discoverybot_client import Client, Job

pytestmark = [pytest.mark.stack]


class Scissors(Relay):
    """Cuts each connection after so many bytes of its server; once there is no number left, none."""

    budgets: list[int]

    async def _answer(self, reader: asyncio.StreamReader, connection: Connection) -> None:
        if not self.budgets:
            await super()._answer(reader, connection)
            return
        left = self.budgets.pop()
        while left and (data := await reader.read(left)):
            left -= len(data)
            connection.client.write(data)
            await connection.client.drain()
        for end in (connection.client, connection.server):
            end.close()


@contextmanager
def cut_way(stack: Stack, job_id: str, budgets: list[int]) -> Iterator[Job]:
    """The job by a way that is cut so often."""
    scissors = Scissors.before(stack.url)
    scissors.budgets = []
    with scissors.running(), Client(scissors.url(stack.url)) as client:
        job = client.job(job_id)
        with scissors.closed():
            scissors.budgets = budgets
        yield job
        assert scissors.budgets == []


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of a tenth; the gateway asks for two seconds after each cut."""
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: time.sleep(seconds / 10))
    monkeypatch.setattr("discoverybot_client._sync.transport.time", clock)


def test_a_log_is_followed_over_twenty_cuts(stack: Stack, site: Site, hasty: None) -> None:
    site.delay = 0.05
    job_id = stack.crawl(f"{site.url}/tree/60")
    with cut_way(stack, job_id, [1200] * 20) as job:
        lines = list(job.follow())
        assert (job.has_ended, job.status) == (True, "finished")
    log = stack.log(job_id).decode().splitlines()
    assert len({line.id for line in lines}) == len(lines) == len(log)
    assert all(text.endswith(line.msg) for text, line in zip(log, lines, strict=True))


def test_pages_of_items_that_are_cut_are_asked_for_again(
    stack: Stack, site: Site, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("discoverybot_client._sync.jobs._PAGE", 10)
    job_id = stack.crawl(f"{site.url}/tree/40")
    stack.wait_final(job_id)
    items = stack.items(job_id)
    page = len(str(items)) // 5
    with cut_way(stack, job_id, [page // 2, 40, 2 * page, page // 3, 0, page * 3 // 2]) as job:
        assert list(job.items()) == items


def test_a_wait_outlives_the_gateway(stack: Stack, site: Site) -> None:
    site.hold()
    job_id, gateway = stack.crawl(f"{site.url}/tree/2"), stack.ready["pids"]["gateway"]
    with Client(stack.url) as client, ThreadPoolExecutor() as threads:
        job = client.job(job_id)
        waiting = threads.submit(job.wait, 120)
        wait_until(lambda: stack.status(job_id)["status"] == "running", what="the crawl")
        stack.kill("gateway")
        stack.wait_for_another("gateway", gateway)
        assert not waiting.done()
        site.release()
        assert waiting.result().require_good().items_count > 0


def test_a_crawl_in_a_line_and_what_is_done_with_a_job(stack: Stack, site: Site) -> None:
    with Client(stack.url, user_id="ada") as client:
        job = client.crawl(f"{site.url}/tree/2", spider="seo", depth=1, ignore_cache=True, wait=60).require_good()
        assert [item["url"] for item in job.items()] == [item["url"] for item in stack.items(job.id)]
        site.hold()
        again = job.retry()
        wait_until(lambda: again.refresh().status == "running", what="the crawl")
        assert again.cancel().wait(60).status == "cancelled"
        assert next(client.jobs(status=["cancelled"])).id == again.id
        again.delete()
        assert again.id not in {one.id for one in client.jobs()}
        assert "seo" in {spider.name for spider in client.spiders()}
        assert client.health()["status"] in {"ok", "degraded"}
        site.release()


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/use-from-python.md", "client/README.md"])
def test_the_example_of_a_page_is_a_dozen_lines_and_runs(stack: Stack, site: Site, page: str) -> None:
    """Submit, follow, items, cancel."""
    text = (ROOT / page).read_text(encoding="utf-8")
    block = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "job.follow" in block)
    lines = [line for line in block.splitlines() if line and not line.startswith("#")]
    assert len(lines) <= 12
    here = "\n".join(lines).replace("http://127.0.0.1:8001", stack.url).replace("https://example.com", site.url)
    done = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Spider opened" in done.stdout
    assert f"\n{site.url}/\n" in done.stdout
