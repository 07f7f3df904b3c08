"""`GET /jobs/{id}/repair`: all facts that are needed to repair a spider; its source only for keys that may deploy."""

from __future__ import annotations

import uuid
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ended_runs import add_errors, found_error
from integration.web.agents import MARK, ORDER, AgentsDoor, open_agents_door
from integration.web.board import Serve, problem
from jobs import make_job

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec, Egg
from gateway.contract.records import SpiderInfo
from gateway.jobs.job import Job, JobStatus
from gateway.projects.eggs import EggStore, SpiderStore
from gateway.requests.store import RequestChunk, RequestStore
from gateway.settings import Settings

SECRET = "secret-of-the-request"
CODE = "class Prices:\n    name = 'prices'\n"


@pytest.fixture(scope="module")
def door(serve: Serve, settings: Settings) -> Iterator[AgentsDoor]:
    with open_agents_door(serve, settings, f"repair-{uuid.uuid4().hex[:8]}") as door:
        yield door


def deploy(door: AgentsDoor, folder: Path) -> None:
    egg = folder / "shop.egg"
    with zipfile.ZipFile(egg, "w") as file:
        file.writestr("shop/spiders/prices.py", CODE)
    store = EggStore(door.board.database)
    assert store.put(Egg("shop", "2"), store.write(egg), None)
    info = SpiderInfo(project="shop", version="2", name="prices", module="shop.spiders.prices")
    own = [SpiderInfo(project="default", name=name) for name in ("jobs", "article")]
    SpiderStore(door.board.database).publish("n1", [info, *own])


def ran(door: AgentsDoor, status: JobStatus, version: str, *rows: dict[str, Any], **fields: Any) -> Job:
    asked = {"env": {"TOKEN": SECRET}, "max_pages": 9 if status is JobStatus.ERROR else None}
    start = ("https://shop.example/",)
    spec = CrawlSpec(project="shop", version=version, spider="prices", start_urls=start, **asked)
    job = make_job(user_id="anne", spec=spec, schedule_id="5c" * 16, live_key=None, **fields)
    door.board.jobs.insert(job)
    door.board.end(job, status, *rows)
    return door.board.jobs.get(job.id)


@pytest.fixture(scope="module")
def broken(door: AgentsDoor, tmp_path_factory: pytest.TempPathFactory) -> Job:
    deploy(door, tmp_path_factory.mktemp("egg"))
    full = [{"title": "a", "price": number} for number in range(20)]
    ran(door, JobStatus.FINISHED, "1", *full, created_at=utc_now() - timedelta(hours=1))
    job = ran(door, JobStatus.ERROR, "2", *({"title": "a", "price": None} for _ in range(20)))
    add_errors(door.board.database, job, found_error(f"{ORDER} {MARK}"))
    line = b'{"url":"https://shop.example/7","status":503,"failed":true,"reason":"HTTP 503","attempt":1,"at":1}\n'
    RequestStore(door.board.database).append(RequestChunk(job.id, 1, 0, len(line), line))
    return job


def test_it_has_what_whoever_mends_the_spider_needs(door: AgentsDoor, broken: Job) -> None:
    told = door.http("root", "GET", f"/jobs/{broken.id}/repair").raise_for_status().json()
    assert told["source"]["files"] == [{"path": "shop/spiders/prices.py", "text": CODE, "is_cut": False}]
    assert [one["url"] for one in told["failing_pages"]] == ["https://shop.example/7"]
    assert [(one["name"], one["lower"]) for one in told["fields"]] == [("price", True)]
    assert [one["name"] for one in told["errors"]] == ["ValueError"]
    changed = {one["name"]: (one["before"], one["now"]) for one in told["differences"]}
    assert changed["status"] == ("finished", "error")
    assert changed["version"] == ("1", "2")
    assert changed["max_pages"] == (None, 9)
    # every part that may have text of a page is listed as untrusted
    of_pages = {name for name in told if ORDER in str(told[name])}
    assert of_pages <= {one.partition(".")[0] for one in told["untrusted"]}
    assert SECRET not in str(told)
    assert told["notice"]


@pytest.mark.parametrize("who", ["agent", "anne", "reader"])
def test_source_is_for_those_who_deploy_it(door: AgentsDoor, broken: Job, who: str) -> None:
    told = door.http(who, "GET", f"/jobs/{broken.id}/repair").raise_for_status().json()
    assert (told["source"], "admin" in told["source_missing"]) == (None, True)
    assert CODE not in str(told)
    assert told["failing_pages"]


def test_others_see_nothing_and_a_run_that_goes_on_has_none(door: AgentsDoor, broken: Job) -> None:
    assert door.http("stranger", "GET", f"/jobs/{broken.id}/repair").status_code == 404
    waiting = make_job(user_id="anne")
    door.board.jobs.insert(waiting)
    assert problem(door.http("anne", "GET", f"/jobs/{waiting.id}/repair")) == (409, "conflict")


def test_a_run_of_the_platforms_own_spider_says_why_it_has_no_source(door: AgentsDoor) -> None:
    told = door.http("root", "GET", "/jobs/{job_id}/repair").raise_for_status().json()
    assert (told["source"], told["last_good_run"]) == (None, None)
    assert "platform's own" in told["source_missing"]
