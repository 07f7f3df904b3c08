"""The Python client against the whole platform, on a way that is cut again and again."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import eggs
import pytest
from receivers import WELL, Receiver
from scissors import Scissors
from sites.server import Site
from stack import ROOT, Stack, wait_until

from discoverybot_client import Client, DeployError, Job, NotFoundError, verify

pytestmark = [pytest.mark.stack]


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
        assert client.health().status in {"ok", "degraded"}
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


def test_what_stays_is_made_used_and_deleted(stack: Stack, site: Site) -> None:
    with Client(stack.url, user_id="cleo") as client:
        schedule = client.schedules.create(f"{site.url}/tree/1", spider="seo", interval="@daily", name="mornings")
        assert [one.id for one in client.schedules.list()] == [schedule.id]
        assert len(schedule.coming(3)) == 3
        run = schedule.run().wait(60).require_good()
        assert [job.id for job in schedule.jobs()] == [run.id]
        assert (schedule.pause().state, schedule.resume().state) == ("paused", "active")
        assert schedule.update(name="evenings", rev=schedule.rev).refresh().name == "evenings"
        schedule.delete()
        with pytest.raises(NotFoundError) as raised:
            client.schedules.get(schedule.id)
        assert raised.value.code == "schedule_not_found"
        dataset = client.datasets.put("pages", key=["url"])
        client.crawl(f"{site.url}/tree/3", spider="seo", depth=1, dataset="pages", wait=60).require_good()
        wait_until(lambda: dataset.refresh().last_seq, what="the changes of the run")
        changes = dataset.changes()
        seen = {change.item["url"]: change.type for change in changes}
        assert set(seen.values()) == {"new"}
        assert seen.keys() == {item.item["url"] for item in dataset.items()}
        assert list(dataset.changes(since=changes.cursor)) == []
        assert [one.name for one in client.datasets.list()] == ["pages"]
        dataset.delete()


def test_a_receiver_is_registered_called_and_verifies(stack: Stack, site: Site) -> None:
    with Client(stack.url, user_id="dora") as client, Receiver(WELL) as receiver:
        endpoint = client.endpoints.create(receiver.url(), events=["job.finished"])
        assert endpoint.secret == endpoint.read_secret()
        assert endpoint.test().state
        job = client.crawl(f"{site.url}/tree/1", spider="seo", wait=60).require_good()
        wait_until(lambda: len(receiver.taken) > 1, what="two calls")
        events = [verify(call.headers, call.body, endpoint.secret or "") for call in receiver.taken]
        assert {event["type"] for event in events} == {"endpoint.test", "job.finished"}
        assert job.id in {event["data"].get("job_id") for event in events}
        assert {delivery.endpoint_id for delivery in endpoint.deliveries()} == {endpoint.id}
        assert [one.id for one in client.endpoints.list()] == [endpoint.id]
        assert endpoint.update(paused=True).paused
        endpoint.delete()


def test_a_project_is_deployed_from_a_folder_and_as_an_egg(stack: Stack, site: Site, tmp_path: Path) -> None:
    spider = f"""
import scrapy


class Ships(scrapy.Spider):
    name = "ships"
    start_urls = ["{site.url}/tree/1"]

    def parse(self, response):
        yield {{"url": response.url}}
"""
    project = eggs.source("harbour", spiders=spider)
    for name, text in {**project, "scrapy.cfg": "[settings]\ndefault = harbour.settings\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    egg = tmp_path / "harbour.egg"
    egg.write_bytes(eggs.egg(project))
    with Client(stack.url, user_id="ada") as client:
        assert client.deploy(tmp_path, version="1.0").project == "harbour"
        assert client.deploy(egg, project="harbour", version="2.0").spiders == 1
        job = client.crawl(spider="ships", project="harbour", wait=60).require_good()
        assert (job.version, [item["url"] for item in job.items()]) == ("2.0", [f"{site.url}/tree/1"])
        with pytest.raises(DeployError, match="is not a Scrapy project"):
            client.deploy(tmp_path / "harbour")
        with pytest.raises(ValueError, match="say project and version"):
            client.deploy(egg)
