"""Variables and settings of projects over HTTP: they are written and listed, and secret ones are never shown."""

from __future__ import annotations

import logging
from typing import Any

import httpx2
import pytest
from pymongo.database import Database
from stack import wait_until
from structlog.testing import capture_logs

from gateway.contract.records import SpiderInfo
from gateway.jobs.store import JobStore
from gateway.projects.eggs import SpiderStore
from gateway.settings import Settings

from .board import Serve
from .conftest import Crawl

SECRET = "topsecret-4242"


@pytest.fixture
def project(user: str) -> str:
    """The name of a project that no other test has."""
    return f"Shop_{user[-6:]}"


def names(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return {one["name"]: "secret" if one["secret"] else one["value"] for one in answer.json()["variables"]}


def test_variables_are_set_listed_and_removed(gateway: httpx2.Client, project: str) -> None:
    env = f"/projects/{project}/env"
    assert names(gateway.get(env)) == {}
    gateway.put(f"{env}/REGION", json={"value": "eu"})
    assert names(gateway.put(f"{env}/API_KEY", json={"value": SECRET, "secret": True})) == {
        "API_KEY": "secret",
        "REGION": "eu",
    }
    assert names(gateway.get(f"/projects/{project.upper()}/env")) == {"API_KEY": "secret", "REGION": "eu"}
    wanted = {"variables": {"API_KEY": {"secret": True}, "MODE": {"value": "fast"}}}
    assert names(gateway.put(env, json=wanted)) == {"API_KEY": "secret", "MODE": "fast"}
    assert names(gateway.delete(f"{env}/MODE")) == {"API_KEY": "secret"}
    gone = gateway.delete(f"{env}/MODE")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "variable_not_found")


def test_a_secret_is_in_no_answer_log_or_document(
    gateway: httpx2.Client, project: str, database: Database[Any], caplog: pytest.LogCaptureFixture
) -> None:
    env = f"/projects/{project}/env"
    with caplog.at_level(logging.DEBUG), capture_logs() as events:
        answers = [
            gateway.put(f"{env}/API_KEY", json={"value": SECRET, "secret": True}),
            gateway.get(env),
            gateway.put(f"{env}/LD_PRELOAD", json={"value": SECRET, "secret": True}),
            gateway.put(f"{env}/OTHER", json={"value": f"{SECRET}\0", "secret": True}),
            gateway.put(f"{env}/OTHER", json={"value": [SECRET]}),
            gateway.put(f"{env}/OTHER", json={"value": SECRET * 5000}),
            gateway.put(env, json={"variables": {"OTHER": SECRET}}),
            gateway.get("/audit"),
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 422, 422, 422, 422, 422, 200]
    logged = [record.getMessage() for record in caplog.records if not record.name.startswith("pymongo")]
    assert events
    assert not [text for text in (*(one.text for one in answers), *logged, *map(str, events)) if SECRET in text]
    assert SECRET not in str(list(database["projects"].find()))


def test_settings_are_replaced_and_guards_are_refused_by_name(gateway: httpx2.Client, project: str) -> None:
    path = f"/projects/{project}/settings"
    pipelines = {"ITEM_PIPELINES": {"shop.pipelines.Prices": 300}}
    wanted = {"settings": pipelines, "open": ["SHOP_PAGES"], "open_env": ["SHOP_REGION"]}
    assert gateway.put(path, json=wanted).json() == {"project": project, **wanted}
    assert gateway.get(path).json() == {"project": project, **wanted}
    for settings, why in (
        ({"JOBDIR": "x"}, "killed attempt"),
        ({"DOWNLOAD_HANDLERS": {"http": "x.Y"}}, "CRAWL_ALLOW_HANDLERS"),
        ({"EXTENSIONS": {"crawler.report.progress.ProgressReport": None}}, "component of the platform"),
    ):
        refused = gateway.put(path, json={"settings": settings})
        (name,) = settings
        assert (refused.status_code, refused.json()["error"]["detail"]["field"]) == (422, f"settings.{name}")
        assert why in refused.text
    assert gateway.get(path).json()["open"] == ["SHOP_PAGES"]


@pytest.mark.parametrize("path", ["env", "settings"])
@pytest.mark.parametrize("name", ["default", "DiscoveryBot"])
def test_our_own_project_has_none(gateway: httpx2.Client, path: str, name: str) -> None:
    answer = gateway.get(f"/projects/{name}/{path}")
    assert (answer.status_code, answer.json()["error"]["detail"]["field"]) == (422, "project")


@pytest.fixture
def shop(gateway: httpx2.Client, crawl: Crawl, database: Database[Any], project: str) -> Crawl:
    """A request for a crawl of a deployed project, once the gateway knows it."""
    info = SpiderInfo(project=project, version="1.0", name="offers")
    SpiderStore(database).publish(f"node of {project}", [info])
    wait_until(lambda: gateway.get("/spiders", params={"project": project}).json()["spiders"], what="its spider")
    gateway.put(f"/projects/{project}/settings", json={"settings": {}, "open_env": ["TOKEN"]}).raise_for_status()
    return {**crawl, "project": project, "spider": "offers"}


def test_variables_of_a_crawl_are_kept_for_the_node_and_shown_to_nobody(
    gateway: httpx2.Client, jobs: JobStore, shop: Crawl
) -> None:
    asked = {**shop, "env": {"TOKEN": SECRET}, "settings": {"RETRY_TIMES": 0}}
    job_id = gateway.post("/crawl", json=asked).raise_for_status().json()["job_id"]
    shown = gateway.get(f"/jobs/{job_id}")
    assert shown.json()["spec"]["env"] == {"TOKEN": "***"}
    assert shown.json()["spec"]["settings"] == {"RETRY_TIMES": 0}
    assert SECRET not in shown.text
    assert jobs.get(job_id).spec.env == {"TOKEN": SECRET}
    assert gateway.post("/crawl", json=asked).json()["job_id"] == job_id
    others = [{**asked, "env": {"TOKEN": "other"}}, {**asked, "settings": {"RETRY_TIMES": 1}}]
    assert job_id not in [gateway.post("/crawl", json=other).json()["job_id"] for other in others]


def test_a_schedule_has_them_too_and_takes_no_mask_for_a_value(gateway: httpx2.Client, shop: Crawl) -> None:
    asked = {**shop, "interval": "every 1h", "env": {"TOKEN": SECRET}, "settings": {"RETRY_TIMES": 0}}
    made = gateway.post("/schedules", json=asked)
    assert made.status_code == 201, made.text
    assert made.json()["crawl"]["env"] == {"TOKEN": "***"}
    path = f"/schedules/{made.json()['schedule_id']}"
    assert gateway.patch(path, json={"env": {"TOKEN": "***"}}).status_code == 422
    changed = gateway.patch(path, json={"settings": {"RETRY_TIMES": 3}}).json()["crawl"]
    assert (changed["settings"], changed["env"]) == ({"RETRY_TIMES": 3}, {"TOKEN": "***"})


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"settings": {"JOBDIR": "x"}}, "settings.JOBDIR"),
        ({"settings": {"SHOP_PAGES": 1}}, "settings.SHOP_PAGES"),
        ({"settings": {"CONCURRENT_REQUESTS": "many"}}, "settings.CONCURRENT_REQUESTS"),
        ({"env": {"DISCOVERYBOT_HOME": SECRET}}, "env.DISCOVERYBOT_HOME"),
        ({"env": {"API_URL": SECRET}}, "env.API_URL"),
    ],
)
def test_what_a_crawl_may_not_have_is_refused_by_name(
    gateway: httpx2.Client, shop: Crawl, fields: dict[str, Any], field: str
) -> None:
    for path, more in (("/crawl", {}), ("/schedules", {"interval": "every 1h"})):
        refused = gateway.post(path, json={**shop, **more, **fields})
        assert (refused.status_code, refused.json()["error"]["detail"]["field"]) == (422, field)
        assert SECRET not in refused.text


def test_a_project_raises_its_crawls_time_limit_as_far_as_the_operator_allows(
    settings: Settings, serve: Serve, gateway: httpx2.Client, shop: Crawl, database: Database[Any]
) -> None:
    project, path = shop["project"], f"/projects/{shop['project']}/settings"
    info = SpiderInfo(project=project, version="1.0", name="patient", timeout=7200)
    SpiderStore(database).publish(
        f"node of {project}", [info, info.model_copy(update={"name": "hasty", "timeout": 60})]
    )
    strict = settings.model_copy(update={"job_max_timeout": 9000})
    with serve(strict) as client:

        def seen(spider: str, **wishes: Any) -> Any:
            answer = client.post("/crawl/preview", json={**shop, "spider": spider, **wishes}).json()
            return answer["crawl"] and answer["crawl"]["timeout"]

        assert [seen("hasty"), seen("patient"), seen("patient", timeout=100)] == [3600, 7260, 100]
        assert seen("patient", settings={"CLOSESPIDER_TIMEOUT": 8000}) == 8060
        gateway.put(path, json={"settings": {"CLOSESPIDER_TIMEOUT": 80_000}}).raise_for_status()
        assert seen("patient") == 9000
        refused = client.post("/crawl", json={**shop, "spider": "patient", "timeout": 9001})
        assert (refused.status_code, "at most 9000 s are allowed here" in refused.text) == (422, True)
        made = client.post("/schedules", json={**shop, "spider": "patient", "interval": "@daily"}).json()
        assert made["crawl"]["timeout"] == 9000
        changed = client.patch(f"/schedules/{made['schedule_id']}", json={"timeout": 9001})
        assert changed.status_code == 422
