"""A second user calls every route that the API describes, and can see and change nothing of the first user."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any, NamedTuple

import httpx2
import pytest
from described import APP
from ended_runs import add_errors, error_groups, found_error
from fastapi.routing import APIRoute, iter_route_contexts
from integration.web.board import Board, Serve, open_board
from jobs import make_job

from gateway.access.key_store import KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.contract.outbox import AttemptId
from gateway.contract.records import SpiderInfo
from gateway.datasets.dataset import DatasetRun, RunState
from gateway.datasets.store import DatasetStore, RunStore
from gateway.error_groups.store import ErrorFilter
from gateway.files.store import FileRecord
from gateway.jobs.job import JobStatus, Trigger
from gateway.projects.eggs import SpiderStore
from gateway.requests.store import RequestChunk, RequestStore
from gateway.settings import Settings
from gateway.signals.alert_rules import BUILT_IN, AlertGroup, Grouping
from gateway.signals.alerts import Alert, AlertRuleStore, AlertStore
from gateway.signals.delivery_store import Delivery, DeliveryStore
from gateway.web.authentication import is_page
from gateway.web.authorisation import _MARK
from gateway.web.description import scopes_of
from gateway.web.routes.jobs import not_a_job

SCOPES = scopes_of(APP.routes)
#: All routes in the API's description, and the console's pages.
ROUTES = sorted(
    {
        f"{method} {one.path_format}"
        for one in iter_route_contexts(APP.routes)
        if isinstance(one.original_route, APIRoute)
        and (one.original_route.include_in_schema or is_page(one.path_format))
        for method in one.methods or ()
    }
)
PATHS = {route.split()[1] for route in ROUTES}
OPEN = {route for route in ROUTES if SCOPES[route] is None}
OWNED = ("job_id", "schedule_id", "run_id", "letter_id", "endpoint_id", "rule_id", "alert_id", "view_id", "error_id")
#: A text in everything that is the first user's.
MARK = "annes-secret"
#: Bodies of the routes that take one; the others ignore theirs.
BODIES: dict[str, dict[str, Any]] = {
    "POST /crawl": {"user_id": "anne", "spider": "jobs", "start_urls": ["https://example.com/"]},
    "POST /crawl/preview": {"user_id": "anne", "spider": "jobs", "start_urls": ["https://example.com/"]},
    "POST /schedules": {
        "user_id": "anne",
        "spider": "jobs",
        "start_urls": ["https://example.com/"],
        "interval": "@daily",
    },
    "POST /jobs/scrape": {"user_id": "anne", "site_name": "board", "search_term": "bees"},
    "POST /jobs/bulk": {"filter": {"user_id": "anne"}, "action": "delete", "expect": 1},
    "PATCH /schedules/{schedule_id}": {"name": "mine now"},
    "PUT /datasets/{name}": {},
    "PATCH /datasets/{name}": {},
    "POST /webhooks/secret": {},
    "POST /endpoints": {"user_id": "anne", "url": "https://example.com/"},
    "PATCH /endpoints/{endpoint_id}": {"paused": True},
    "POST /alerts/rules": {"user_id": "anne", "name": "failed", "when": {"measure": "failed"}},
    "POST /alerts/rules/preview": {"user_id": "anne", "name": "failed", "when": {"measure": "failed"}},
    "PATCH /alerts/rules/{rule_id}": {"paused": True},
    "POST /alerts/{alert_id}/silence": {"until": None},
    "PATCH /errors/{error_id}": {"state": "resolved"},
    "POST /endpoints/{endpoint_id}/deliveries/resend": {"missing": True},
    "POST /jobs/{job_id}/deliveries/resend": {"missing": True},
    "POST /views": {"list": "jobs", "name": "mine", "query": ""},
    "PATCH /views/{view_id}": {"shared": True},
    "POST /v2/scrape": {"url": "https://example.com/", "timeout": 1},
    "POST /v2/map": {"url": "https://example.com/", "timeout": 1},
    "POST /v2/crawl": {"url": "https://example.com/"},
    "POST /v2/batch/scrape": {"urls": ["https://example.com/"]},
}
#: Routes whose calls would wait for a node, which is not there.
WAITING = {"POST /v2/scrape", "POST /v2/map"}
#: Routes with a body that are about the calling user, and name no user.
OF_CALLER = {"POST /views", "POST /v2/crawl", "POST /v2/batch/scrape", *WAITING}
#: Routes whose query names the user.
NAMED = {"PUT /datasets/{name}", "PATCH /datasets/{name}", "POST /webhooks/secret"}


def error_of(answer: httpx2.Response) -> dict[str, Any]:
    """The error in the form of our own API, also if the answer has the form of Firecrawl's."""
    told = answer.json()
    if "success" in told:
        return {"code": told["code"], "message": told["error"], "detail": told.get("details")}
    error: dict[str, Any] = told["error"]
    return error


class Door(NamedTuple):
    client: httpx2.Client
    keys: dict[str, str]
    #: Ids of what is the first user's, by the name of the parameter in an address.
    ids: dict[str, str]
    board: Board

    def call(self, route: str, who: str | None, ids: dict[str, str] | None = None, **more: Any) -> httpx2.Response:
        """The answer; of a stream only its first bytes."""
        method, path = route.split()
        headers = {"Authorization": f"Bearer {self.keys[who]}"} if who else {}
        address = path.format(
            **{
                **dict.fromkeys(("name", "project", "node", "path"), "board"),
                "target_id": "1",
                "version": "1",
                "variable": "API_KEY",
                "key_id": "board",
                "spider": "jobs",
                "run": (ids or self.ids)["job_id"],
                **(ids or self.ids),
                # a `{name}` is a dataset's only in addresses of datasets; elsewhere it may be a file's
                **({"name": (ids or self.ids).get("dataset", "board")} if "/datasets/" in path else {}),
                **({"job_id": (ids or self.ids)["pages_id"]} if path.startswith("/v2/") else {}),
            }
        )
        body: dict[str, Any] = {"json": BODIES[route]} if route in BODIES else {}
        if route in NAMED:
            body["params"] = {"user_id": "anne"}
        # a call before may have signed somebody in
        self.client.cookies.clear()
        with self.client.stream(method, address, headers=headers, **{**body, **more}) as answer:
            if answer.headers.get("content-type", "").startswith("text/event-stream") and answer.is_success:
                answer._content = next(answer.iter_raw())
            else:
                answer.read()
            return answer


@pytest.fixture(scope="module")
def door(serve: Serve, settings: Settings) -> Iterator[Door]:
    with open_board(serve, settings, "isolation") as board:
        names, schema = ("jobs", "pages", "sitemap"), {"type": "object"}
        spiders = [SpiderInfo(project="default", name=name, params_schema=schema) for name in names]
        SpiderStore(board.database).publish("n1", spiders)
        issue = KeyIssue(KeyStore(board.jobs._jobs.database))
        keys = {
            "anne": issue.issue("anne", [Scope.CRAWL]),
            "bert": issue.issue("bert", [Scope.CRAWL]),
            "reader": issue.issue("anne", [Scope.READ]),
            "colleague": issue.issue("carl", [Scope.READ_ALL]),
            "both": issue.issue("carl", [Scope.READ_ALL, Scope.CRAWL]),
            "admin": issue.issue("root", [Scope.ADMIN]),
        }
        texts = {name: str(issued.token) for name, issued in keys.items()}
        for who in ("anne", "admin"):
            answer = board.http.post("/webhooks/secret", headers={"Authorization": f"Bearer {texts[who]}"})
            assert answer.status_code == 201, answer.text
        yield Door(board.http, texts, _belongings(board, texts["anne"]), board)


def _belongings(board: Board, key: str) -> dict[str, str]:
    spec = CrawlSpec(spider="jobs", start_urls=(f"https://{MARK}.example/",), site="board")
    ended = {"status": JobStatus.ERROR, "settled": True, "live_key": None, "dead": True, "message": MARK}
    ended["finished_at"] = utc_now()
    job = make_job(user_id="anne", spec=spec, trigger=Trigger.MANUAL, tags=[MARK], **ended)
    board.jobs.insert(job)
    _keep_file(board, job.id)
    line = b'{"url": "http://' + MARK.encode() + b'"}\n'
    RequestStore(board.database).append(RequestChunk(job.id, 1, 0, len(line), line))
    _hold_run(board, job.id)
    body = {**BODIES["POST /schedules"], "name": MARK, "start_urls": ["https://example.com/" + MARK]}
    answer = board.http.post("/schedules", json=body, headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 201, answer.text
    ids = {"job_id": job.id, "letter_id": job.id, "run_id": f"manual_{job.id}"}
    ids["schedule_id"] = answer.json()["schedule_id"]
    of_pages = make_job(user_id="anne", spec=spec.model_copy(update={"spider": "pages", "site": None}), **ended)
    board.jobs.insert(of_pages)
    ids["pages_id"] = of_pages.id
    body = {"url": f"https://{MARK}.example/"}
    answer = board.http.post("/endpoints", json=body, headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 201, answer.text
    ids["endpoint_id"] = answer.json()["endpoint_id"]
    told = Delivery.new("msg_1", "x", utc_now(), user_id="anne", type=MARK, body="{}", url=MARK, **_only(ids))
    DeliveryStore(board.database).add([told])
    body = {"name": MARK, "when": {"measure": "failed"}}
    answer = board.http.post("/alerts/rules", json=body, headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 201, answer.text
    ids["rule_id"] = answer.json()["rule_id"]
    rule = AlertRuleStore(board.database).get(ids["rule_id"])
    assert rule is not None
    alert = Alert.new(rule, "anne", AlertGroup(Grouping.SPIDER, MARK), utc_now()).fires(utc_now(), MARK, job.id, None)
    AlertStore(board.database).save(alert, None)
    body = {"list": "jobs", "name": MARK, "query": f"q={MARK}"}
    view = board.http.post("/views", json=body, headers={"Authorization": f"Bearer {key}"}).json()
    add_errors(board.database, job, found_error(MARK))
    ((group,), _) = error_groups(board.database).page(ErrorFilter(user_id="anne"), 9, None)
    ids |= {"error_id": group.id, "view_id": view["view_id"]}
    return {**ids, "delivery_id": told.id, "alert_id": alert.id}


def _only(ids: dict[str, str]) -> dict[str, str]:
    """The endpoint and the job of a delivery."""
    return {name: ids[name] for name in ("endpoint_id", "job_id")}


def _hold_run(board: Board, job_id: str) -> None:
    now = utc_now()
    dataset = DatasetStore(board.database).ensure("anne", "board", {})
    facts = {"dataset": dataset.id, "scope": MARK, "message": MARK, "started_at": now, "ended_at": now, "at": now}
    RunStore(board.database).save(DatasetRun(job_id=job_id, state=RunState.HELD, **facts))


def _keep_file(board: Board, job_id: str) -> None:
    """Store a file of the job, with the name that `Door.call` puts in the place of `{name}`."""
    attempt, now = AttemptId(job_id, 1), utc_now()
    board.files.keep(attempt, "board", [MARK.encode()])
    board.files.note(FileRecord.of(attempt, "board", size=len(MARK), sha256=MARK, modified_at=now, stored_at=now))


def test_the_scope_stands_at_each_function() -> None:
    functions = {one.original_route.endpoint for one in iter_route_contexts(APP.routes) if one.path_format in PATHS}
    # what says that an address is of another method
    assert functions - {not_a_job} == {one for one in functions if hasattr(one, _MARK)}


def test_what_is_anothers_is_not_there(door: Door) -> None:
    owned = [route for route in ROUTES if any(f"{{{name}}}" in route for name in OWNED)]
    for route, as_job in product(owned, ({}, {"job_id": door.ids["schedule_id"]})):
        ids = {**door.ids, **as_job}
        answer = door.call(route, "bert", ids)
        nobodys = uuid.uuid4().hex
        missing = door.call(route, "bert", {**dict.fromkeys(ids, nobodys), "run_id": f"manual_{nobodys}"})
        assert (answer.status_code, missing.status_code) == (404, 404), (route, answer.text)
        told, expected = error_of(answer), error_of(missing)
        assert told["code"] == expected["code"], route
        # the messages are the same, except for the id
        assert told["message"].split("'")[0] == expected["message"].split("'")[0], route
        assert told["detail"] == expected["detail"], route
        assert door.call("GET " + route.split()[1], None, ids).status_code in {401, 405}, route
    _everything_is_as_it_was(door)


def _everything_is_as_it_was(door: Door) -> None:
    assert door.board.jobs.get(door.ids["job_id"]).dead
    schedule = door.call("GET /schedules/{schedule_id}", "anne").json()
    assert (schedule["name"], schedule["state"], schedule["rev"]) == (MARK, "active", 1)


def test_what_names_nobodys_thing_tells_of_ones_own_alone(door: Door) -> None:
    for route in (route for route in ROUTES if not any(name in route for name in OWNED)):
        answer = door.call(route, "bert")
        if route in BODIES.keys() - OF_CALLER:
            assert (answer.status_code, error_of(answer)["code"]) == (403, "not_your_user"), route
        elif route in WAITING:
            assert answer.status_code == 408, route
        elif route in OPEN or SCOPES[route] in {Scope.READ, Scope.AGENT, Scope.CRAWL}:
            assert answer.is_success or answer.status_code == 404, (route, answer.text)
        else:
            assert (answer.status_code, error_of(answer)["code"]) == (403, "scope_missing"), route
        assert not [text for text in (MARK, *door.ids.values()) if text in answer.text], route


@pytest.mark.parametrize("who", ["anne", "bert"])
def test_who_asks_for_a_crawl_is_the_user_of_the_key(door: Door, who: str) -> None:
    body, headers = BODIES["POST /crawl"] | {"depth": 3}, {"Authorization": f"Bearer {door.keys[who]}"}
    del body["user_id"]
    first = door.client.post("/crawl", json=body, headers=headers).json()
    again = door.client.post("/crawl", json={**body, "user_id": who}, headers=headers).json()
    assert (first["cached"], again["cached"], again["job_id"]) == (False, True, first["job_id"])
    assert door.board.jobs.get(first["job_id"]).user_id == who


@pytest.mark.parametrize("route", ["GET /jobs", "GET /dead-letters", "GET /schedules", "GET /events"])
def test_a_list_cannot_be_asked_for_another_user(door: Door, route: str) -> None:
    answer = door.call(route, "bert", params={"user_id": "anne"})
    assert (answer.status_code, error_of(answer)["code"]) == (403, "not_your_user")
    assert door.call(route, "anne", params={"user_id": "anne"}).is_success
    for who in ("anne", "reader", "colleague", "both", "admin"):
        text = door.call(route, who).text
        assert MARK in text or route == "GET /events"


def test_a_secret_of_webhooks_is_its_users_own(door: Door) -> None:
    route = "GET /webhooks/secret"
    own = {who: door.call(route, who).json()["secret"] for who in ("anne", "admin")}
    assert own["anne"] != own["admin"]
    assert door.call(route, "admin", params={"user_id": "anne"}).json()["secret"] == own["anne"]
    answer = door.call(route, "bert", params={"user_id": "anne"})
    assert (answer.status_code, error_of(answer)["code"]) == (403, "not_your_user")
    assert door.call(route, "reader").status_code == 403


def test_what_rules_say_of_nodes_is_for_admins_alone(door: Door) -> None:
    now, rule = utc_now(), BUILT_IN["node-down"]
    alert = Alert.new(rule, "", AlertGroup(Grouping.NODE, "node-seven"), now).fires(now, "it is down", None, None)
    AlertStore(door.board.database).save(alert, None)
    for who in ("anne", "colleague", "both", "admin"):
        for route in ("GET /alerts", "GET /alerts/{alert_id}", "GET /console/alerts"):
            answer = door.call(route, who, {**door.ids, "alert_id": alert.id})
            assert ("node-seven" in answer.text) == (who == "admin"), (who, route)
    for measure in ("node_down", "disk_full"):
        body = {"when": {"measure": measure}}
        builtin = {**door.ids, "rule_id": "crawl-failed"}
        answer = door.call("PATCH /alerts/rules/{rule_id}", "anne", builtin, json=body)
        assert (answer.status_code, error_of(answer)["detail"]["field"]) == (422, "when")
    AlertStore(door.board.database).delete([alert.id])


def test_an_endpoint_for_all_users_crawls_is_for_admins_alone(door: Door) -> None:
    body = {"user_id": "anne", "url": "https://example.com/", "all_users": True}
    refused = door.call("POST /endpoints", "anne", json=body)
    assert (refused.status_code, error_of(refused)["code"]) == (403, "scope_missing")
    made = door.call("POST /endpoints", "admin", json=body).json()
    theirs = {**door.ids, "endpoint_id": made["endpoint_id"]}
    for route in (route for route in ROUTES if "{endpoint_id}" in route):
        answer = door.call(route, "anne", theirs)
        assert (answer.status_code, made["secret"] in answer.text) == (403, False), route
    assert door.call("GET /endpoints/{endpoint_id}", "admin", theirs).json()["url"] == body["url"]
    door.call("DELETE /endpoints/{endpoint_id}", "admin", theirs)


def test_ids_in_a_query_or_a_header_open_nothing(door: Door) -> None:
    job, schedule = door.ids["job_id"], door.ids["schedule_id"]
    assert door.call("GET /events", "bert", params={"job_id": job}).status_code == 404
    assert door.call("GET /events", "anne", params={"job_id": job}).is_success
    assert door.call("GET /jobs", "bert", params={"schedule_id": schedule}).json()["jobs"] == []
    own = door.client.post(
        "/schedules",
        json={**BODIES["POST /schedules"], "user_id": "bert"},
        headers={"Authorization": f"Bearer {door.keys['bert']}"},
    ).json()["schedule_id"]
    mine = {**door.ids, "schedule_id": own}
    assert door.call("GET /schedules/{schedule_id}/items", "bert", mine, params={"run": job}).status_code == 404
    after = {"after": f"{job}.1-1", "limit": 5}
    assert MARK not in door.call("GET /schedules/{schedule_id}/items", "bert", mine, params=after).text


def test_the_owner_and_admins_reach_all_of_it(door: Door) -> None:
    # otherwise the tests above would also pass if everything were refused
    gets = [route for route in ROUTES if route.startswith("GET ")]
    for route, who in product(gets, ("anne", "reader", "colleague", "admin")):
        answer = door.call(route, who)
        scope = SCOPES[route] or Scope.READ
        if who == "admin" or scope == Scope.READ or (who, scope) == ("anne", Scope.CRAWL):
            is_nobodys = any(name in route for name in ("{target_id}", "{node}", "{project}"))
            # 409: no node is alive that could say what its version depends on
            assert not answer.is_error or (is_nobodys and answer.status_code in {404, 409}), (route, answer.text)
        else:
            assert answer.status_code == 403, (route, who)


def test_nobody_gets_in_without_a_key_but_where_it_is_open(door: Door) -> None:
    for route in ROUTES:
        answer = door.call(route, None)
        # signing in needs a key
        if route in OPEN - {"POST /session"}:
            assert answer.is_success, route
            continue
        assert (answer.status_code, error_of(answer)["code"]) == (401, "key_required"), route
        assert answer.headers["www-authenticate"] == 'Bearer realm="discoverybot"', route


def test_a_run_of_a_site_is_its_callers(door: Door) -> None:
    body = {"json": {"site_name": "board", "search_term": "bees"}}
    run = door.call("POST /jobs/scrape", "bert", **body).json()["data"]
    assert door.board.jobs.get(run["task_id"]).user_id == "bert"
    named = {**door.ids, "run_id": run["run_id"]}
    assert door.call("GET /jobs/scrape/{run_id}", "bert", named).is_success
    assert door.call("GET /jobs/scrape/{run_id}", "anne", named).status_code == 404
    # an admin's runs belong to `operator`, as all runs did before there were keys
    run = door.call("POST /jobs/scrape", "admin", **body).json()["data"]
    assert door.board.jobs.get(run["task_id"]).user_id == "operator"


def test_a_key_that_only_reads_changes_nothing(door: Door) -> None:
    changing = [
        route for route in ROUTES if SCOPES[route] in {Scope.AGENT, Scope.CRAWL} and not route.startswith("GET ")
    ]
    for route, who in product(changing, ("reader", "colleague")):
        answer = door.call(route, who)
        assert (answer.status_code, error_of(answer)["code"]) == (403, "scope_missing")
    _everything_is_as_it_was(door)


def test_who_may_read_all_and_crawl_changes_what_is_their_own_alone(door: Door) -> None:
    changing = [
        route for route in ROUTES if SCOPES[route] in {Scope.AGENT, Scope.CRAWL} and not route.startswith("GET ")
    ]
    for route in changing:
        if route in BODIES.keys() - OF_CALLER or any(name in route for name in OWNED):
            answer = door.call(route, "both")
            assert (answer.status_code, error_of(answer)["code"]) == (403, "not_your_user"), route
    _everything_is_as_it_was(door)
    unknown = {**door.ids, "job_id": uuid.uuid4().hex}
    assert door.call("POST /jobs/{job_id}/cancel", "both", unknown).status_code == 404


def test_a_function_without_a_scope_is_for_admins(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    function = next(one.original_route.endpoint for one in iter_route_contexts(APP.routes) if one.path == "/spiders")
    monkeypatch.delattr(function, _MARK)
    assert door.call("GET /spiders", "bert").status_code == 403
    assert door.call("GET /spiders", "admin").is_success


def test_a_crawl_of_ones_own_is_taken(door: Door) -> None:
    body = {"user_id": "bert", "spider": "jobs", "start_urls": ["https://example.com/"]}
    later = {"schedule_at": (utc_now() + timedelta(days=1)).isoformat()}
    for more in ({}, later):
        answer = door.call("POST /crawl", "bert", json={**body, **more})
        assert answer.is_success, answer.text
        theirs = {**door.ids, "job_id": answer.json()["job_id"]}
        assert door.call("GET /jobs/{job_id}/status", "bert", theirs).is_success
        assert door.call("GET /jobs/{job_id}/status", "anne", theirs).status_code == 404


@pytest.mark.parametrize("action", ["delete", "dismiss", "requeue", "retry"])
def test_acts_on_all_that_matches_are_on_ones_own_alone(door: Door, action: str) -> None:
    door.client.cookies.clear()
    headers = {"Authorization": f"Bearer {door.keys['bert']}"}
    body = {"filter": {"tag": MARK}, "action": action}
    assert door.client.post("/jobs/bulk", json=body, headers=headers).json()["matched"] == 0
    answer = door.client.post("/jobs/bulk", json={**body, "expect": 1}, headers=headers)
    assert error_of(answer)["code"] == "count_changed"
    _everything_is_as_it_was(door)


@pytest.mark.parametrize("name", ["job_id", "other_job_id"])
def test_a_job_in_the_query_must_be_the_callers_own_too(door: Door, name: str) -> None:
    own = make_job(user_id="bert")
    door.board.jobs.insert(own)
    path = f"/jobs/{own.id}/differences" if name == "other_job_id" else f"/console/jobs/{own.id}/compare"
    headers = {"Authorization": f"Bearer {door.keys['bert']}"}
    answer = door.client.get(path, params={name: door.ids["job_id"]}, headers=headers)
    assert answer.status_code == 404
    assert MARK not in answer.text
