"""Each operation of the API can be called with the client, as the API's description has it, or it is said why not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest
from described import document

from discoverybot_client import Client, Record

JOB = "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
SOON = datetime(2027, 6, 1, tzinfo=UTC)
CONDITION: Any = {"measure": "failed", "runs": 3}


CALLS: dict[str, Callable[[Client, Path], Any]] = {
    "create_crawl": lambda client, _: client.start_crawl("https://example.com", spider="seo", schedule_at=SOON),
    "preview_crawl": lambda client, _: client.preview_crawl("https://example.com", spider="seo", depth=1),
    "get_job": lambda client, _: client.job(JOB),
    "list_jobs": lambda client, _: client.jobs(status=["error"], since=SOON, dead=True, limit=7),
    "count_jobs": lambda client, _: client.count_jobs(tag="nightly"),
    "act_on_jobs": lambda client, _: client.act_on_jobs("cancel", tag="nightly", since=SOON),
    "follow_jobs": lambda client, _: next(client.events(JOB)),
    "list_spiders": lambda client, _: client.spiders(project="shop", name="seo"),
    "get_spider_days": lambda client, _: client.spider_days("shop", "prices", 7),
    "get_spider_fields": lambda client, _: client.spider_fields("shop", "prices", schedule_id=JOB),
    "get_jobs_health": lambda client, _: client.jobs_health(),
    "get_scheduler_status": lambda client, _: client.scheduler(last=3),
    "get_health": lambda client, _: client.health(),
    "get_session": lambda client, _: client.whoami(),
    "get_webhook_secret": lambda client, _: client.read_webhook_secret(),
    "renew_webhook_secret": lambda client, _: client.renew_webhook_secret(keep_hours=1),
    "get_queue_status": lambda client, _: client.queue(hours=2),
    "list_audit_entries": lambda client, _: client.audit(kind="command", since=SOON),
    # a job
    "cancel_job": lambda client, _: client.job(JOB).cancel(),
    "pause_job": lambda client, _: client.job(JOB).pause(begin_anew=True),
    "resume_job": lambda client, _: client.job(JOB).resume(),
    "retry_job": lambda client, _: client.job(JOB).retry(),
    "delete_job": lambda client, _: client.job(JOB).delete(),
    "follow_job_log": lambda client, _: next(client.job(JOB).follow(level="INFO")),
    "download_job_log": lambda client, path: client.job(JOB).download_log(path / "log", "jsonl", level="INFO"),
    "list_job_items": lambda client, _: client.job(JOB).items(attempt=2, fields=["url", "title"], q="bees"),
    "download_job_items": lambda client, path: client.job(JOB).export(path / "items.csv", "csv"),
    "get_job_log_lines": lambda client, _: client.job(JOB).search_log("bees", level="INFO", limit=1),
    "get_job_progress": lambda client, _: client.job(JOB).progress(),
    "list_job_runs": lambda client, _: client.job(JOB).runs(limit=3),
    "get_repair_bundle": lambda client, _: client.job(JOB).repair(),
    "get_job_delivery": lambda client, _: client.job(JOB).delivery(JOB),
    "resend_job_deliveries": lambda client, _: client.job(JOB).resend(missing=True),
    "download_job_requests": lambda client, path: client.job(JOB).export_requests(
        path / "requests.csv", "csv", failed=True, sort="-ms", bom=True, escape_formulas=False
    ),
    "list_job_requests": lambda client, _: client.job(JOB).requests(failed=True, sort="-ms"),
    "list_job_error_groups": lambda client, _: client.job(JOB).errors(),
    "get_job_fields": lambda client, _: client.job(JOB).fields(compare=True),
    "get_item_differences": lambda client, _: client.job(JOB).differences(JOB, key=["sku", "size"], limit=9),
    "get_job_timeline": lambda client, _: client.job(JOB).timeline(),
    "list_job_deliveries": lambda client, _: client.job(JOB).deliveries(state="failed"),
    "list_job_files": lambda client, _: client.job(JOB).files(),
    "get_job_file": lambda client, path: client.job(JOB).download("a b.pdf", path / "file"),
    # schedules
    "create_schedule": lambda client, _: client.schedules.create(
        "https://example.com", spider="seo", interval="@daily", ends_at=SOON
    ),
    "get_schedule": lambda client, _: client.schedules.get(JOB).refresh(),
    "list_schedules": lambda client, _: client.schedules.list(state="paused"),
    "update_schedule": lambda client, _: client.schedules.get(JOB).update(interval="@hourly", rev=1),
    "pause_schedule": lambda client, _: client.schedules.get(JOB).pause(),
    "resume_schedule": lambda client, _: client.schedules.get(JOB).resume(),
    "run_schedule": lambda client, _: client.schedules.get(JOB).run(),
    "preview_schedule": lambda client, _: client.schedules.get(JOB).coming(3),
    "list_schedule_items": lambda client, _: client.schedules.get(JOB).items(q="bees", limit=1),
    "download_schedule_items": lambda client, path: client.schedules.get(JOB).export(
        path / "items", "csv", run=JOB, attempt="all", fields=["url"], q="bees", bom=True, escape_formulas=False
    ),
    "list_schedule_history": lambda client, _: client.schedules.get(JOB).history(limit=3),
    "get_schedule_days": lambda client, _: client.schedules.get(JOB).days(),
    "delete_schedule": lambda client, _: client.schedules.get(JOB).delete(),
    # dead letters
    "list_dead_letters": lambda client, _: client.dead_letters.list(spider="seo"),
    "requeue_dead_letter": lambda client, _: next(client.dead_letters.list()).requeue(),
    "dismiss_dead_letter": lambda client, _: next(client.dead_letters.list()).dismiss(),
    # datasets
    "put_dataset": lambda client, _: client.datasets.put("pages", key=["url"]),
    "get_dataset": lambda client, _: client.datasets.get("pages").refresh(),
    "list_datasets": lambda client, _: client.datasets.list(),
    "update_dataset": lambda client, _: client.datasets.get("pages").update(ignore=["seen"]),
    "delete_dataset": lambda client, _: client.datasets.get("pages").delete(),
    "list_dataset_changes": lambda client, _: client.datasets.get("pages").changes(since=SOON, types=["new"]),
    "list_dataset_items": lambda client, _: client.datasets.get("pages").items(q="bees", removed=True, limit=5),
    "download_dataset_items": lambda client, path: client.datasets.get("pages").export(
        path / "items", "csv", fields=["url"], q="bees", removed=True, as_of=7, bom=True, escape_formulas=False
    ),
    "download_dataset_changes": lambda client, path: client.datasets.get("pages").export_changes(
        path / "changes", "csv", since=SOON, types=["new"], fields=["url"], bom=True, escape_formulas=False
    ),
    "list_dataset_runs": lambda client, _: client.datasets.get("pages").list_runs(state="held"),
    "get_dataset_run": lambda client, _: client.datasets.get("pages").run(JOB),
    "accept_dataset_run": lambda client, _: client.datasets.get("pages").run(JOB).accept(new_normal=True),
    "reject_dataset_run": lambda client, _: client.datasets.get("pages").run(JOB).reject(),
    "export_dataset_run": lambda client, _: client.datasets.get("pages").run(JOB).export(),
    "get_dataset_health": lambda client, _: client.datasets.get("pages").health(),
    "get_dataset_schema": lambda client, _: client.datasets.get("pages").schema(learned=True),
    # endpoints
    "create_endpoint": lambda client, _: client.endpoints.create("https://example.com", events=["job.failed"]),
    "get_endpoint": lambda client, _: client.endpoints.get(JOB).refresh(),
    "list_endpoints": lambda client, _: client.endpoints.list(limit=1),
    "update_endpoint": lambda client, _: client.endpoints.get(JOB).update(paused=True),
    "delete_endpoint": lambda client, _: client.endpoints.get(JOB).delete(),
    "test_endpoint": lambda client, _: client.endpoints.get(JOB).test(),
    "get_endpoint_secret": lambda client, _: client.endpoints.get(JOB).read_secret(),
    "renew_endpoint_secret": lambda client, _: client.endpoints.get(JOB).renew_secret(keep_hours=1),
    "list_endpoint_deliveries": lambda client, _: client.endpoints.get(JOB).deliveries(type="job.failed"),
    "get_endpoint_delivery": lambda client, _: client.endpoints.get(JOB).delivery(JOB),
    "resend_endpoint_deliveries": lambda client, _: client.endpoints.get(JOB).resend(missing=True, since=SOON),
    # alerts and errors
    "list_alerts": lambda client, _: client.alerts.list(firing=True),
    "get_alert": lambda client, _: client.alerts.get(JOB),
    "silence_alert": lambda client, _: client.alerts.get(JOB).silence(SOON),
    "delete_alert": lambda client, _: client.alerts.get(JOB).delete(),
    "list_alert_rules": lambda client, _: client.alert_rules.list(),
    "create_alert_rule": lambda client, _: client.alert_rules.create("failed", CONDITION, filter={"tags": ["a"]}),
    "preview_alert_rule": lambda client, _: client.alert_rules.preview("failed", CONDITION, days=7),
    "get_alert_rule": lambda client, _: client.alert_rules.get(JOB).refresh(),
    "update_alert_rule": lambda client, _: client.alert_rules.get(JOB).update(silenced_until=SOON),
    "delete_alert_rule": lambda client, _: client.alert_rules.get(JOB).delete(),
    "list_error_groups": lambda client, _: client.errors.list(state="open", new_since=SOON),
    "get_error_group": lambda client, _: client.errors.get(JOB),
    "update_error_group": lambda client, _: client.errors.get(JOB).resolve(version="2").reopen().ignore(),
    # sites
    "create_site": lambda client, _: client.sites.create("board", "https://example.com/?q={keywords}", enabled=False),
    "get_site": lambda client, _: client.sites.get("board"),
    "list_sites": lambda client, _: client.sites.list(enabled=True),
    "update_site": lambda client, _: client.sites.get("board").update(max_retries=1),
    "delete_site": lambda client, _: client.sites.get("board").delete(force=True),
    "scrape_site": lambda client, _: client.sites.get("board").scrape(search_term="bees"),
    "get_site_days": lambda client, _: client.sites.get("board").days(),
    "create_target": lambda client, _: client.targets.create("board", keywords="bees", frequency=60),
    "get_target": lambda client, _: client.targets.get("1"),
    "list_targets": lambda client, _: client.targets.list(site="board", enabled=True),
    "update_target": lambda client, _: client.targets.get("1").update(location="Paris"),
    "delete_target": lambda client, _: client.targets.get("1").delete(),
    # projects
    "deploy_version": lambda client, path: client.deploy(_egg(path), project="shop", version="2.0"),
    "list_projects": lambda client, _: client.projects.list(),
    "list_versions": lambda client, _: client.projects.get("shop").list_versions(),
    "activate_version": lambda client, _: client.projects.get("shop").activate("1.0"),
    "roll_back_project": lambda client, _: client.projects.get("shop").roll_back(),
    "delete_version": lambda client, _: client.projects.get("shop").delete_version("1.0"),
    "get_version_dependencies": lambda client, _: client.projects.get("shop").dependencies("1.0"),
    "get_project_env": lambda client, _: client.projects.get("shop").variables(),
    "set_project_variable": lambda client, _: client.projects.get("shop").set_variable("TOKEN", "x", secret=True),
    "replace_project_env": lambda client, _: client.projects.get("shop").replace_variables(
        {"REGION": {"value": "eu"}}
    ),
    "unset_project_variable": lambda client, _: client.projects.get("shop").unset_variable("TOKEN"),
    "get_project_settings": lambda client, _: client.projects.get("shop").settings(),
    "replace_project_settings": lambda client, _: client.projects.get("shop").replace_settings(
        {"DOWNLOAD_DELAY": 1}, open=["DEPTH_LIMIT"]
    ),
    "get_project_days": lambda client, _: client.projects.get("shop").days(),
    # nodes, keys, views
    "list_nodes": lambda client, _: client.nodes.list(),
    "get_node": lambda client, _: client.nodes.get("n1"),
    "invite_node": lambda client, _: client.nodes.invite(minutes=5, note="rack 2"),
    "drain_node": lambda client, _: client.nodes.get("n1").drain(wait=5),
    "resume_node": lambda client, _: client.nodes.get("n1").resume(),
    "forget_node": lambda client, _: client.nodes.get("n1").forget(),
    "list_keys": lambda client, _: client.keys.list(),
    "create_key": lambda client, _: client.keys.create("ada", ["crawl"], budget={"pages": 500}, expires_at=SOON),
    "revoke_key": lambda client, _: next(client.keys.list()).revoke(),
    "list_saved_views": lambda client, _: client.views.list("jobs"),
    "create_saved_view": lambda client, _: client.views.create("jobs", "failed", "status=error", shared=True),
    "get_saved_view": lambda client, _: client.views.get(JOB),
    "update_saved_view": lambda client, _: client.views.get(JOB).update(default=True),
    "delete_saved_view": lambda client, _: client.views.get(JOB).delete(),
}
#: What `client.request`, `pages`, `stream` and `pieces` are for.
LEFT_OUT = {
    **dict.fromkeys(("get_job_status", "get_liveness"), "another operation says more"),
    **dict.fromkeys(
        ("get_job_log_index", "search_job_log"), "for pages that show a long log; `search_log` has the lines"
    ),
    **dict.fromkeys(("list_job_points", "get_schedule_calendar"), "for pictures"),
    "get_site_run": "`jobs` and `items` have it",
    "list_site_abilities": "for agents",
    **dict.fromkeys(("create_stream_token", "sign_in", "sign_out"), "for browsers"),
    **dict.fromkeys(("join_as_node", "get_node_page", "cancel_on_node"), "for nodes, and pages of Scrapyd"),
    **dict.fromkeys(("get_metrics", "run_scheduler"), "for Prometheus, and for a cron in place of the beat"),
}


def _egg(folder: Path) -> Path:
    (folder / "shop.egg").write_bytes(b"egg")
    return folder / "shop.egg"


@cache
def _operations() -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Method, path and description of each operation by its id, without those for Firecrawl's clients."""
    return {
        operation["operationId"]: (method, path, operation)
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
        if operation["tags"] != ["firecrawl"]
    }


def test_what_cannot_be_called_is_known() -> None:
    assert CALLS.keys() | LEFT_OUT.keys() == _operations().keys()
    assert not CALLS.keys() & LEFT_OUT.keys()


class Described:
    """A gateway that takes what the description says, and answers so."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        name, operation = self._operation(request)
        self.asked.append(name)
        known = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
        assert request.url.params.keys() <= known
        if "application/json" in operation.get("requestBody", {}).get("content", {}):
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            whole = {**schema, "components": document()["components"]}
            jsonschema.Draft202012Validator(whole).validate(json.loads(request.content))
        status, answer = next(iter((int(s), a) for s, a in operation["responses"].items() if s < "3"))
        kinds = answer.get("content", {})
        of_json = [content["schema"] for kind, content in kinds.items() if kind.endswith(("/json", "+json"))]
        if of_json and "event-stream" not in request.headers.get("accept", ""):
            return httpx2.Response(status, json=example(of_json[0]))
        if "text/event-stream" in kinds:
            event = b'id: 1-9\nevent: log\ndata: {"msg": "x", "level": "INFO"}\n\n'
            return httpx2.Response(status, content=event, headers={"Content-Type": "text/event-stream"})
        return httpx2.Response(status, content=b"text" if kinds else b"")

    def _operation(self, request: httpx2.Request) -> tuple[str, dict[str, Any]]:
        asked = f"{request.method.lower()} {request.url.raw_path.decode().partition('?')[0]}"
        for name, (method, path, operation) in _operations().items():
            if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(f"{method} {path}")), asked):
                return name, operation
        raise AssertionError(f"there is no {asked}")


#: Values by type or format.
VALUES = {
    "date-time": "2027-06-01T09:00:00.000Z",
    "date": "2027-06-01",
    "string": JOB,
    "integer": 0,  # a page of changes after which no more is pending
    "number": 0.5,
    "boolean": True,
}


def example(schema: dict[str, Any]) -> Any:
    """A value of the schema: with all fields, and `null` where that is one."""
    if "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if choices := schema.get("anyOf", schema.get("oneOf")):
        return None if {"type": "null"} in choices else example(choices[0])
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if schema.get("type") == "object":
        return {name: example(field) for name, field in schema.get("properties", {}).items()}
    if schema.get("type") == "array":
        return [example(schema["items"])]
    return VALUES.get(schema.get("format", schema.get("type")))


def _records(told: Any) -> Iterator[Record]:
    """Each record in an answer, with those inside of it."""
    if isinstance(told, Record):
        yield told
        for name in told.raw:
            if not callable(inner := getattr(told, name)):
                yield from _records(inner)
    elif isinstance(told, list | dict):
        for one in told.values() if isinstance(told, dict) else told:
            yield from _records(one)


@pytest.mark.parametrize("name", CALLS)
def test_an_operation_is_called_as_it_is_described(name: str, tmp_path: Path) -> None:
    gateway = Described()
    with Client("http://127.0.0.1:9", user_id="ada", transport=httpx2.MockTransport(gateway.answer)) as client:
        told = CALLS[name](client, tmp_path)
        told = list(told) if hasattr(told, "__iter__") and not isinstance(told, str | list | dict | tuple) else told
    assert name in gateway.asked
    for record in _records(told):
        assert repr(record)
        times = [name for name, kind in record._kinds().items() if "datetime" in str(kind)]
        assert not [name for name in times if isinstance(getattr(record, name), str)]


#: How each is called, and the query that comes of it; the dataset is the described one, of the user `JOB`.
EXPORTS: dict[str, tuple[Callable[[Client, Path], Any], dict[str, str]]] = {
    "a schedule's items": (
        lambda client, path: client.schedules.get(JOB).export(path, "csv", fields=["url", "title"], run=JOB),
        {"format": "csv", "fields": "url,title", "run": JOB},
    ),
    "a dataset's items": (
        lambda client, path: client.datasets.get("pages").export(path, fields=["url", "title"], q="a", removed=True),
        {"format": "jsonl", "fields": "url,title", "q": "a", "removed": "true", "user_id": JOB},
    ),
    "a dataset's changes": (
        lambda client, path: client.datasets.get("pages").export_changes(path, "csv", fields=["url"], bom=True),
        {"format": "csv", "fields": "url", "bom": "true", "since": "0", "user_id": JOB},
    ),
    "a job's requests": (
        lambda client, path: client.job(JOB).export_requests(path, "csv", status="4xx", escape_formulas=False),
        {"format": "csv", "status": "4xx", "escape_formulas": "false"},
    ),
}


@pytest.mark.parametrize("what", EXPORTS)
def test_a_file_is_asked_for_with_its_options_alone(what: str, tmp_path: Path) -> None:
    gateway, asked = Described(), []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(dict(request.url.params))
        return gateway.answer(request)

    export, query = EXPORTS[what]
    with Client("http://127.0.0.1:9", user_id="ada", transport=httpx2.MockTransport(answer)) as client:
        export(client, tmp_path / "file")
    assert asked[-1] == query
