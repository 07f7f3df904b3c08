"""A key that may read one project calls every route: it sees all of the project, and no trace of another one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import product
from typing import Any

import httpx2
import pytest
from described import APP
from ended_runs import add_errors, error_groups, found_error
from fastapi.routing import iter_route_contexts
from integration.web.board import Board, Serve, open_board
from integration.web.test_isolation import OPEN, OWNED, ROUTES, SCOPES, Door, error_of
from jobs import make_job

from gateway.access.key_store import KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.access.saved_views import ListName, SavedViews, ViewStore
from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec, DatasetOrder
from gateway.contract.outbox import AttemptId
from gateway.contract.records import SpiderInfo
from gateway.datasets.dataset import DatasetRun, RunState
from gateway.datasets.store import DatasetStore, RunStore
from gateway.error_groups.store import ErrorFilter
from gateway.files.store import FileRecord
from gateway.items.items import Item
from gateway.jobs.job import CrawlOrder, Job, JobStatus, Trigger, WaitingReason, new_job_id
from gateway.nodes.store import NodeStore
from gateway.projects.eggs import SpiderStore
from gateway.requests.store import RequestChunk, RequestStore
from gateway.schedules.schedule import LedgerEntry, LedgerKind, Schedule, Timing
from gateway.schedules.store import LedgerStore, ScheduleStore
from gateway.settings import Settings
from gateway.signals.alert_rules import BUILT_IN, AlertGroup, Grouping
from gateway.signals.alerts import Alert, AlertStore
from gateway.web.authorisation import is_by_project

#: The project that the key may read, and one that it may not. Everything of a project has the project's name in it,
#: so a search for the hidden name finds what leaks.
SHOWN, HIDDEN = "shopping", "undercover"
#: Routes that a key for projects may call: a parameter names something of a project, or the route has a mark.
SERVED = {
    f"{method} {one.path_format}"
    for one in iter_route_contexts(APP.routes)
    for method in one.methods or ()
    if SCOPES.get(f"{method} {one.path_format}") is Scope.READ
    and is_by_project(one.original_route.endpoint, one.original_route.param_convertors)
}
#: Lists that must show something of the readable project: an empty list would prove nothing.
LISTS = [
    *(
        "/jobs",
        "/jobs/points",
        "/dead-letters",
        "/schedules",
        "/schedules/calendar",
        "/errors",
        "/spiders",
        "/projects",
    ),
    *("/events", "/", "/console/jobs", "/console/dead-letters", "/console/schedules", "/console/schedules/week"),
    *("/console/projects", "/console/errors", "/console/unusual", "/datasets", "/console/datasets"),
]


class Belongings:
    """One thing of each kind in a project. Its jobs belong to another user than the key does."""

    def __init__(self, board: Board, project: str) -> None:
        self.board, self.project, self.spider = board, project, f"{project}-spider"
        self.ended = self._ended()
        self.running = self.job(status=JobStatus.RUNNING)
        self.waiting = self.job(status=JobStatus.PENDING, trigger=Trigger.MANUAL)
        self.later = self.job(status=JobStatus.SCHEDULED, not_before=utc_now() + timedelta(hours=1))
        self.jobs = [self.ended, self.running, self.waiting, self.later]
        self.schedule = self._schedule()
        self.ids = self._ids()

    def spec(self) -> CrawlSpec:
        url, dataset = f"https://{self.project}.example/", DatasetOrder(name=f"{self.project}-set")
        return CrawlSpec(
            project=self.project, version="1", spider=self.spider, start_urls=(url,), dataset=dataset, site=None
        )

    def job(self, **fields: Any) -> Job:
        made = make_job(user_id="bert", spec=self.spec(), tags=[f"{self.project}-tag"], **fields)
        self.board.jobs.insert(made)
        return made

    def _ended(self) -> Job:
        now, database = utc_now(), self.board.database
        ends = {"status": JobStatus.ERROR, "settled": True, "live_key": None, "dead": True, "finished_at": now}
        made = self.job(**ends, started_at=now, message=f"{self.project}-message", trigger=Trigger.MANUAL)
        attempt, line = AttemptId(made.id, 1), b'{"url": "http://%s"}\n' % self.project.encode()
        self.board.files.keep(attempt, "board", [self.project.encode()])
        told = {"size": len(self.project), "sha256": "a", "modified_at": now, "stored_at": now}
        self.board.files.note(FileRecord.of(attempt, "board", **told))
        RequestStore(database).append(RequestChunk(made.id, 1, 0, len(line), line))
        self.board.items.insert([Item(made.id, 1, 1, {"title": f"{self.project}-item"})])
        add_errors(database, made, found_error(f"{self.project}-error"))
        dataset = DatasetStore(database).ensure("bert", f"{self.project}-set", {})
        DatasetStore(database).note_project(dataset, self.project)
        facts = {"scope": self.project, "message": self.project, "started_at": now, "ended_at": now, "at": now}
        RunStore(database).save(DatasetRun(dataset=dataset.id, job_id=made.id, state=RunState.HELD, **facts))
        return made

    def _schedule(self) -> Schedule:
        now, order = utc_now(), CrawlOrder(spec=self.spec(), tags=[f"{self.project}-tag"])
        soon = dict.fromkeys(("next_at", "next_run"), now + timedelta(hours=1))
        made = Schedule(
            id=new_job_id(),
            user_id="bert",
            name=f"{self.project}-name",
            crawl=order,
            timing=Timing(interval="@hourly", starts_at=now),
            fingerprint=new_job_id(),
            last_job_id=self.ended.id,
            created_at=now,
            updated_at=now,
            **soon,
        )
        self.jobs.append(self.job(schedule_id=made.id, status=JobStatus.FINISHED, settled=True, finished_at=now))
        ScheduleStore(self.board.database).insert(made)
        entry = {"schedule_id": made.id, "kind": LedgerKind.FIRED, "rev": 1, "late_by_seconds": 0.0}
        times = dict.fromkeys(("at", "due", "recorded_at"), now)
        LedgerStore(self.board.database).record([LedgerEntry(job_id=self.jobs[-1].id, **entry, **times)])
        return made

    def _ids(self) -> dict[str, str]:
        database, job_id = self.board.database, self.ended.id
        group = AlertGroup(Grouping.SPIDER, self.spider)
        alert = Alert.new(BUILT_IN["crawl-failed"], "bert", group, utc_now())
        AlertStore(database).save(alert.fires(utc_now(), self.project, job_id, None), None)
        # a view of the key's own user, who may have saved the project's name with another key
        query = {"query": f"project={self.project}", "shared": True}
        view = SavedViews(ViewStore(database)).save(
            "carl", ListName.JOBS, f"{self.project}-view", default=None, **query
        )
        ((error,), _) = error_groups(database).page(ErrorFilter(project=self.project), 9, None)
        return {
            "job_id": job_id, "letter_id": job_id, "run_id": f"manual_{job_id}", "pages_id": job_id,
            "schedule_id": self.schedule.id, "error_id": error.id, "alert_id": alert.id, "view_id": view.id,
            "rule_id": "crawl-failed", "endpoint_id": new_job_id(), "delivery_id": "msg_1",
            "project": self.project, "spider": self.spider, "dataset": f"{self.project}-set",
        }  # fmt: skip

    @property
    def secrets(self) -> set[str]:
        """Texts that must not be in an answer about another project."""
        named = {value for name, value in self.ids.items() if name not in {"rule_id", "endpoint_id", "delivery_id"}}
        return {self.project, *named, *(job.id for job in self.jobs)}


@pytest.fixture(scope="module")
def board(serve: Serve, settings: Settings) -> Iterator[Board]:
    with open_board(serve, settings, "project-keys") as board:
        named = [SpiderInfo(project=one, version="1", name=f"{one}-spider") for one in (SHOWN, HIDDEN, SHOWN.upper())]
        own = [SpiderInfo(project="default", name=one) for one in ("jobs", "pages", "sitemap")]
        SpiderStore(board.database).publish("n1", [*own, *named])
        yield board


@pytest.fixture(scope="module")
def shown(board: Board) -> Belongings:
    return Belongings(board, SHOWN)


@pytest.fixture(scope="module")
def hidden(board: Board) -> Belongings:
    return Belongings(board, HIDDEN)


@pytest.fixture(scope="module")
def door(board: Board, shown: Belongings, hidden: Belongings) -> Door:
    issue = KeyIssue(KeyStore(board.database))

    def key(user_id: str, scope: Scope, projects: Sequence[str] = ()) -> str:
        return str(issue.issue(user_id, [scope], projects=projects).token)

    keys = {
        "admin": key("root", Scope.ADMIN),
        "reader": key("carl", Scope.READ_ALL, [SHOWN]),
        "both": key("carl", Scope.READ_ALL, [SHOWN, HIDDEN]),
        "bert": key("bert", Scope.READ_ALL, [SHOWN]),
    }
    return Door(board.http, keys, shown.ids, board)


def told(answer: httpx2.Response, secrets: set[str]) -> list[str]:
    headers = " ".join(f"{name}: {value}" for name, value in answer.headers.items())
    return sorted(one for one in secrets if one in answer.text or one in headers)


# `bert` owns the jobs in the hidden project, but his key for projects shows it no more than the other key does
@pytest.mark.parametrize("who", ["reader", "bert"])
@pytest.mark.parametrize("route", ROUTES)
def test_no_route_tells_of_another_project(door: Door, hidden: Belongings, route: str, who: str) -> None:
    answer = door.call(route, who)
    assert not told(answer, hidden.secrets)
    if route in OPEN:
        return
    if SCOPES[route] is not Scope.READ:
        assert (answer.status_code, error_of(answer)["code"]) == (403, "scope_missing")
    elif route not in SERVED:
        assert (answer.status_code, error_of(answer)["code"]) == (403, "projects_only")
        assert error_of(answer)["message"].startswith(f"this key can only read the project '{SHOWN}'")
    else:
        # Firecrawl's API only knows crawls of the spider `pages`
        assert not answer.is_error or route.split()[1].startswith("/v2/"), answer.text


@pytest.mark.parametrize(
    "route",
    [one for one in ROUTES if any(f"{{{name}}}" in one for name in (*OWNED, "project")) or "/datasets/{name}" in one],
)
def test_what_is_of_another_project_is_not_there(door: Door, hidden: Belongings, route: str) -> None:
    nobodys = {**dict.fromkeys(hidden.ids, uuid.uuid4().hex), "run_id": f"manual_{uuid.uuid4().hex}"}
    answer, missing = door.call(route, "reader", hidden.ids), door.call(route, "reader", nobodys)
    assert answer.status_code in {403, 404}, answer.text
    first, second = error_of(answer), error_of(missing)
    assert (answer.status_code, first["code"], first["detail"]) == (
        missing.status_code,
        second["code"],
        second["detail"],
    )
    # the messages are the same, except for the id
    assert first["message"].split("'")[0] == second["message"].split("'")[0]
    assert (answer.status_code == 403) == (route not in SERVED)
    # a key for both projects may see it
    if route in SERVED and not route.split()[1].startswith("/v2/"):
        assert not door.call(route, "both", hidden.ids).is_error


def test_what_is_not_kept_by_project_is_refused() -> None:
    refused = {route.split()[1] for route, scope in SCOPES.items() if scope is Scope.READ and route not in SERVED}
    of_job = {"/console/jobs/{job_id}/changes", "/jobs/sites"}
    roots = ("/alerts", "/views", "/v2/", "/console/alerts", "/console/views")
    assert of_job <= refused
    assert {path for path in refused if not path.startswith(roots)} == of_job
    assert not [route for route in SERVED if route.split()[1].startswith(roots) and "/v2/" not in route]


@pytest.mark.parametrize("path", LISTS)
def test_a_list_has_what_is_of_the_project_alone(
    door: Door, shown: Belongings, hidden: Belongings, path: str
) -> None:
    route = f"GET {path}"
    if path != "/console/unusual":
        assert SHOWN in door.call(route, "reader").text or told(door.call(route, "reader"), shown.secrets)
        assert told(door.call(route, "both"), hidden.secrets)
    for query in ({"user_id": "bert"}, {"project": HIDDEN}):
        filtered = door.call(route, "reader", params=query)
        # some lists have no such filter
        assert filtered.is_success or error_of(filtered)["code"] == "invalid_request"
        assert not told(filtered, hidden.secrets - {HIDDEN})


def test_counts_are_of_the_project_alone(door: Door, shown: Belongings, hidden: Belongings) -> None:
    def count(who: str, **query: Any) -> int:
        number: int = door.call("GET /jobs/count", who, params=query).json()["count"]
        return number

    assert (count("reader"), count("both")) == (len(shown.jobs), len(shown.jobs) + len(hidden.jobs))
    assert (count("reader", q="undercover"), count("both", q="undercover")) == (0, len(hidden.jobs))
    assert (count("reader", project=HIDDEN), count("both", project=HIDDEN)) == (0, len(hidden.jobs))
    assert count("reader", tag=f"{HIDDEN}-tag") == count("reader", spider=hidden.spider) == 0
    assert (count("reader", user_id="bert"), count("reader", user_id="carl")) == (len(shown.jobs), 0)
    (version,) = door.call("GET /projects/{project}/versions", "reader").json()["versions"]
    assert version["spiders"] == 1


def test_no_place_in_the_queue_is_told_because_it_counts_others(door: Door, shown: Belongings) -> None:
    waiting = {**shown.ids, "job_id": shown.waiting.id}
    for route in ("GET /jobs/{job_id}", "GET /jobs/{job_id}/status"):
        places = [door.call(route, who, waiting).json()["queue_position"] for who in ("admin", "reader")]
        assert places[0] >= 1, places
        assert places[1] is None
    pages = [door.call("GET /console/jobs/{job_id}/log", who, waiting).text for who in ("admin", "reader")]
    assert ["Queue position" in page for page in pages] == [True, False]


def test_ids_in_a_query_open_nothing(door: Door, hidden: Belongings, shown: Belongings) -> None:
    job = {"job_id": hidden.ended.id}
    for route in ("GET /events", "GET /jobs", "GET /console/jobs/{job_id}/compare"):
        assert door.call(route, "reader", params=job).status_code == 404
        # the comparison may lead to the later of both runs
        assert not door.call(route, "both", params=job).is_error
    assert door.call("GET /jobs", "reader", params={"schedule_id": hidden.schedule.id}).json()["jobs"] == []
    assert door.call("GET /jobs", "reader", params={"id_prefix": hidden.ended.id[:8]}).json()["jobs"] == []
    asked = {"run": hidden.jobs[-1].id}
    assert door.call("GET /schedules/{schedule_id}/items", "reader", params=asked).status_code == 404
    as_job = {**shown.ids, "job_id": hidden.schedule.id}
    assert door.call("GET /jobs/{job_id}/items", "reader", as_job).status_code == 404


def test_a_schedule_that_was_of_another_project_is_hidden_with_its_history(
    door: Door, board: Board, shown: Belongings, hidden: Belongings
) -> None:
    moved, now = new_job_id(), utc_now()
    runs = [one.job(schedule_id=moved, status=JobStatus.FINISHED, finished_at=now) for one in (hidden, shown)]
    stored = shown.schedule.model_copy(update={"id": moved, "fingerprint": new_job_id(), "name": None})
    ScheduleStore(board.database).insert(stored)
    ids, named = {**shown.ids, "schedule_id": moved}, "GET /schedules/{schedule_id}"
    assert door.call(named, "reader", ids).is_success
    # runs of one schedule in two projects are not shown beside each other
    beside = door.call("GET /jobs/{job_id}/runs", "reader", {**shown.ids, "job_id": runs[1].id})
    assert [one["job_id"] for one in beside.json()["runs"]] == [runs[1].id]
    move = {"project": HIDDEN, "spider": hidden.spider}, {"project": SHOWN, "spider": shown.spider}
    for change in move:
        answer = door.call("PATCH /schedules/{schedule_id}", "admin", ids, json=change)
        assert answer.is_success, answer.text
    lists = ("GET /schedules", "GET /schedules/calendar", "GET /console/spiders/{project}/{spider}")
    assert door.call(named, "reader", ids).status_code == 404
    assert door.call("GET /jobs/{job_id}/logs/lines", "reader", {**ids, "job_id": moved}).status_code == 404
    assert [moved in door.call(route, "reader").text for route in lists] == [False, False, False]
    assert door.call(named, "both", ids).is_success
    assert [moved in door.call(route, "both").text for route in lists] == [True, True, True]
    ScheduleStore(board.database).delete(moved)
    for run in runs:
        board.database["jobs"].delete_one({"_id": run.id})


def test_a_stream_that_waits_for_a_schedule_ends_when_it_is_moved(
    door: Door, board: Board, shown: Belongings, hidden: Belongings
) -> None:
    moved = new_job_id()
    fields = {"id": moved, "fingerprint": new_job_id(), "name": None, "last_job_id": None}
    ScheduleStore(board.database).insert(shown.schedule.model_copy(update=fields))
    headers = {"Authorization": f"Bearer {door.keys['reader']}", "Accept": "text/event-stream"}
    with door.client.stream("GET", f"/jobs/{moved}/logs", headers=headers, timeout=60) as answer:
        chunks = answer.iter_text()
        seen = next(chunks)
        change = {"project": HIDDEN, "spider": hidden.spider}
        ids = {**shown.ids, "schedule_id": moved}
        assert door.call("PATCH /schedules/{schedule_id}", "admin", ids, json=change).is_success
        run = hidden.job(schedule_id=moved, status=JobStatus.FINISHED, settled=True, finished_at=utc_now())
        seen += "".join(chunks)
    ScheduleStore(board.database).delete(moved)
    board.database["jobs"].delete_one({"_id": run.id})
    assert "scheduled" in seen
    assert not [one for one in hidden.secrets | {run.id} if one in seen]


def test_a_stream_tells_of_new_jobs_of_the_project_alone(door: Door, shown: Belongings, hidden: Belongings) -> None:
    headers = {"Authorization": f"Bearer {door.keys['reader']}"}
    new: list[Job] = []
    with door.client.stream("GET", "/events", headers=headers, timeout=60) as answer:
        chunks = answer.iter_text()
        snapshot, seen = next(chunks), ""
        new = [one.job(status=JobStatus.PENDING) for one in (hidden, shown)]
        for job in new:
            door.board.publisher.status(job)
        while new[1].id not in seen and ": ping" not in seen:
            seen += next(chunks)
    for job in new:
        door.board.database["jobs"].delete_one({"_id": job.id})
    assert shown.running.id in snapshot
    assert new[1].id in seen
    assert not [one for one in hidden.secrets | {new[0].id} if one in snapshot + seen]


def test_a_dataset_that_other_projects_feed_too_is_not_there(
    door: Door, board: Board, shown: Belongings, hidden: Belongings
) -> None:
    store, ids = DatasetStore(board.database), {**shown.ids, "dataset": "fed-by-both"}
    routes = [f"GET /datasets/{{name}}{part}" for part in ("", "/items", "/changes", "/runs", "/health", "/schema")]
    dataset = store.ensure("bert", "fed-by-both", {})
    for project, seen in ((None, []), (SHOWN, ["reader", "both"]), (HIDDEN, ["both"])):
        if project:
            store.note_project(store.get("bert", "fed-by-both"), project)
        for who, route in product(("reader", "both"), routes):
            assert door.call(route, who, ids).status_code == (200 if who in seen else 404), (project, who, route)
        for who, path in product(("reader", "both"), ("/datasets", "/console/datasets")):
            assert ("fed-by-both" in door.call(f"GET {path}", who).text) == (who in seen)
    # the user in the query changes nothing
    assert door.call("GET /datasets/{name}", "reader", ids, params={"user_id": "bert"}).status_code == 404
    store.mark_deleted(dataset)


def test_a_dataset_of_which_a_run_was_not_noted_is_not_there(door: Door, board: Board, shown: Belongings) -> None:
    store, ids = DatasetStore(board.database), {**shown.ids, "dataset": "of-old"}
    dataset = store.ensure("bert", "of-old", {})
    store.note_project(dataset, SHOWN)
    assert door.call("GET /datasets/{name}", "reader", ids).is_success
    # as if an older worker had published a run, without its project
    board.database["datasets"].update_one({"_id": dataset.id}, {"$set": {"runs": 1}})
    assert door.call("GET /datasets/{name}", "reader", ids).status_code == 404
    assert door.call("GET /datasets/{name}", "admin", ids).is_success
    store.mark_deleted(dataset)


def test_another_users_dataset_of_the_same_name_stays_unknown(door: Door, board: Board, shown: Belongings) -> None:
    store, ids = DatasetStore(board.database), {**shown.ids, "dataset": "twice"}
    made = [store.ensure(user, "twice", {}) for user in ("bert", "dora")]
    for one, project in zip(made, (SHOWN, HIDDEN), strict=True):
        store.note_project(one, project)
    assert door.call("GET /datasets/{name}", "reader", ids).json()["user_id"] == "bert"
    assert door.call("GET /datasets/{name}", "both", ids).status_code == 422
    for one in made:
        store.mark_deleted(one)


def test_a_stream_of_changes_ends_once_another_project_feeds_the_dataset(
    door: Door, board: Board, shown: Belongings
) -> None:
    store, ids = DatasetStore(board.database), {**shown.ids, "dataset": "followed"}
    dataset = store.ensure("bert", "followed", {})
    store.note_project(dataset, SHOWN)
    waits = {"wait": 20, "since": 0}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(door.call, "GET /datasets/{name}/changes", "reader", ids, params=waits)
        store.note_project(dataset, HIDDEN)
        board.database["datasets"].update_one({"_id": dataset.id}, {"$set": {"head_seq": 1, "noted_runs": 0}})
        assert waiting.result().status_code == 404
    store.mark_deleted(dataset)


def test_the_page_of_a_waiting_job_does_not_tell_how_many_crawls_of_others_run(
    door: Door, board: Board, shown: Belongings
) -> None:
    facts: dict[str, Any] = {"url": "http://127.0.0.1:1", "max_slots": 4, "alive": [], "present": []}
    NodeStore(board.database).heartbeat("n1", **facts, beating_since=utc_now())
    waiting = shown.job(waiting_reason=WaitingReason.CAPACITY)
    ids = {**shown.ids, "job_id": waiting.id}
    pages = {who: door.call("GET /console/jobs/{job_id}/log", who, ids).text for who in ("admin", "reader")}
    assert ["of 4 crawls run now" in pages[who] for who in ("admin", "reader")] == [True, False]
    assert waiting.id in pages["reader"]


def test_a_session_and_the_console_say_what_is_read(door: Door) -> None:
    assert door.call("GET /session", "reader").json()["projects"] == [SHOWN]
    page = door.call("GET /", "reader").text
    assert "who sees" in page
    assert [f'href="{path}"' in page for path in ("/console/projects", "/console/datasets", "/console/alerts")] == [
        *(True, True, False)
    ]
    tabs = door.call("GET /console/jobs/{job_id}/log", "reader").text
    assert ["/runs#tab" in tabs, "/changes#tab" in tabs] == [True, False]


def test_our_own_project_goes_by_both_its_names(door: Door) -> None:
    key = KeyIssue(KeyStore(door.board.database)).issue("carl", [Scope.READ_ALL], projects=["discoverybot"])
    own = door._replace(keys={"own": str(key.token)})
    assert key.key.projects == ("default",)
    for name in ("default", "discoverybot"):
        ids = {**door.ids, "project": name}
        assert own.call("GET /projects/{project}/versions", "own", ids).is_success
    assert {one["project"] for one in own.call("GET /spiders", "own").json()["spiders"]} == {"default"}
    assert own.call("GET /jobs/{job_id}", "own").status_code == 404


@pytest.mark.parametrize(
    ("scopes", "projects"),
    [
        (["read"], ["shop"]),
        (["read_all", "crawl"], ["shop"]),
        (["admin"], ["shop"]),
        (["read_all"], [""]),
        (["read_all"], ["../shop"]),
        (["read_all"], [f"shop{number}" for number in range(21)]),
    ],
)
def test_a_key_that_does_more_than_read_has_no_projects(door: Door, scopes: list[str], projects: list[str]) -> None:
    body = {"user_id": "carl", "scopes": scopes, "projects": projects}
    answer = door.call("POST /keys", "admin", json=body)
    assert (answer.status_code, error_of(answer)["detail"]["field"]) == (422, "projects")


def test_a_key_for_an_unknown_project_is_refused_with_the_names_that_are_near(door: Door) -> None:
    body = {"user_id": "dora", "scopes": ["read_all"], "projects": ["discoverybott"]}
    error = error_of(door.call("POST /keys", "admin", json=body))
    assert error["detail"]["field"] == "projects"
    assert "there is no project 'discoverybott'" in error["message"]


def test_a_key_for_projects_is_made_over_http(door: Door) -> None:
    body = {"user_id": "dora", "scopes": ["read_all"], "projects": [HIDDEN, SHOWN, SHOWN]}
    made = door.call("POST /keys", "admin", json=body).json()
    assert (made["projects"], made["expires_at"]) == ([SHOWN, HIDDEN], None)
    (listed,) = (one for one in door.call("GET /keys", "admin").json()["keys"] if one["key_id"] == made["key_id"])
    assert (listed["projects"], listed["state"], listed["scopes"]) == ([SHOWN, HIDDEN], "valid", ["read_all"])
    of_dora = door._replace(keys={"dora": made["key"]})
    assert of_dora.call("GET /jobs", "dora").json()["jobs"]
