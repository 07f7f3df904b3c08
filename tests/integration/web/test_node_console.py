"""Scrapyd's pages through the gateway: only admins see them, the node gets no cookie or key of theirs, and scripts of
the pages have no power.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from integration.web.board import Serve, problem
from integration.web.stand_in_node import LOG, PASSWORD, StandInNode, stand_in_node
from jobs import make_job
from pymongo.database import Database
from stores import free_port

from gateway.access.key_store import KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.jobs.job import Attempt, JobStatus
from gateway.jobs.store import JobStore
from gateway.nodes.store import NodeStore
from gateway.settings import Settings
from gateway.stores.mongo import connect


@pytest.fixture(scope="module")
def node() -> Iterator[StandInNode]:
    with stand_in_node() as running:
        yield running


@pytest.fixture(scope="module")
def own_settings(settings: Settings) -> Settings:
    uri = settings.mongo_uri.replace("/discoverybot", "/node-console")
    return Settings.model_validate({**settings.model_dump(), "mongo_uri": uri, "scrapyd_password": PASSWORD})


@pytest.fixture(scope="module")
def own(own_settings: Settings, node: StandInNode) -> Iterator[Database[dict[str, Any]]]:
    database = connect(own_settings.mongo_uri)
    said = {"max_slots": 1, "alive": (), "present": (), "beating_since": utc_now()}
    NodeStore(database).heartbeat("n1", url=node.url, **said)
    NodeStore(database).heartbeat("gone", url=f"http://127.0.0.1:{free_port()}", **said)
    yield database
    database.client.close()


@pytest.fixture(scope="module")
def admin(serve: Serve, own_settings: Settings, own: Database[dict[str, Any]]) -> Iterator[httpx2.Client]:
    """A browser that an admin has signed in."""
    issued = KeyIssue(KeyStore(own)).issue("root", [Scope.ADMIN])
    with serve(own_settings) as client:
        client.post("/session", json={"key": str(issued.token)}).raise_for_status()
        yield client


@pytest.fixture
def origin(admin: httpx2.Client) -> dict[str, str]:
    return {"Origin": str(admin.base_url).rstrip("/")}


def test_the_node_gets_its_password_and_nothing_of_the_browsers(admin: httpx2.Client, node: StandInNode) -> None:
    page = admin.get("/nodes/n1/scrapyd/", headers={"Referer": f"{admin.base_url}docs"})
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html"
    # the page's links lead through the gateway
    assert 'href="/nodes/n1/scrapyd/jobs"' in page.text
    sent = node.asked[-1][2]
    assert not {"Cookie", "Referer", "Origin", "X-CSRF-Token"} & set(sent)
    assert sent["Authorization"].startswith("Basic ")
    assert "set-cookie" not in page.headers
    assert PASSWORD not in str(page.headers)


def test_its_page_can_do_nothing_but_send_the_one_form(admin: httpx2.Client) -> None:
    page = admin.get("/nodes/n1/scrapyd/jobs")
    policy = dict(part.partition(" ")[::2] for part in page.headers["content-security-policy"].split("; "))
    assert policy["sandbox"] == "allow-same-origin allow-forms"
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "script-src" not in policy
    assert policy["form-action"] == f"{page.request.url.netloc.decode()}/nodes/n1/scrapyd/cancel.json"
    assert page.headers["x-content-type-options"] == "nosniff"


def test_logs_and_items_come_as_they_are_and_in_parts(admin: httpx2.Client) -> None:
    assert admin.get("/nodes/n1/scrapyd/logs/a.log").content == LOG
    assert admin.get("/nodes/n1/scrapyd/items/a%20%3F.jl").content == LOG
    part = admin.get("/nodes/n1/scrapyd/logs/a.log", headers={"Range": "bytes=0-3"})
    assert (part.status_code, part.content) == (206, LOG[:4])
    assert part.headers["content-range"] == f"bytes 0-3/{len(LOG)}"
    assert admin.get("/nodes/n1/scrapyd/items/a.js").headers["content-type"] == "application/octet-stream"
    assert admin.get("/nodes/n1/scrapyd/logs").headers["location"] == "/nodes/n1/scrapyd/logs/"


@pytest.mark.parametrize(
    "path",
    ["daemonstatus.json", "schedule.json", "cancel.json", "logs/%2e%2e/cancel.json", "logs/..%2fjobs", "jobs/", "x"],
)
def test_what_is_no_page_is_not_asked_for(admin: httpx2.Client, node: StandInNode, path: str) -> None:
    before = len(node.asked)
    assert problem(admin.get(f"/nodes/n1/scrapyd/{path}"))[0] in {404, 405}
    assert len(node.asked) == before


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("n1/scrapyd/logs/none", (404, "not_found")),
        ("nobody/scrapyd/jobs", (404, "node_not_found")),
        ("gone/scrapyd/jobs", (502, "node_unreachable")),
        ("n1/scrapyd/logs/elsewhere", (502, "node_error")),
        ("n1/scrapyd/logs/broken", (502, "node_error")),
        ("n1/scrapyd/logs/huge", (502, "node_error")),
    ],
)
def test_what_cannot_be_had_is_said_as_ever(admin: httpx2.Client, path: str, expected: tuple[int, str]) -> None:
    assert problem(admin.get(f"/nodes/{path}")) == expected


def test_a_node_that_does_not_take_our_password_is_named_for_it(
    serve: Serve, own_settings: Settings, own: Database[dict[str, Any]]
) -> None:
    key = KeyIssue(KeyStore(own)).issue("root", [Scope.ADMIN]).token
    wrong = Settings.model_validate({**own_settings.model_dump(), "scrapyd_password": "wrong"})
    with serve(wrong) as client:
        answer = client.get("/nodes/n1/scrapyd/jobs", headers={"Authorization": f"Bearer {key}"})
    assert problem(answer) == (502, "node_shut")


def test_it_is_for_admins(admin: httpx2.Client, own: Database[dict[str, Any]]) -> None:
    key = KeyIssue(KeyStore(own)).issue("anne", [Scope.CRAWL]).token
    for method, path in (("GET", "jobs"), ("POST", "cancel.json")):
        answer = admin.request(method, f"/nodes/n1/scrapyd/{path}", headers={"Authorization": f"Bearer {key}"})
        assert problem(answer) == (403, "scope_missing")


def test_the_button_cancels_a_job_of_scrapyds_own(
    admin: httpx2.Client, node: StandInNode, origin: dict[str, str]
) -> None:
    answer = admin.post("/nodes/n1/scrapyd/cancel.json", data={"project": "theirs", "job": "one"}, headers=origin)
    assert (answer.status_code, answer.headers["location"]) == (303, "/nodes/n1/scrapyd/jobs")
    assert node.cancelled[-1] == b"project=theirs&job=one"


def test_a_project_that_the_node_does_not_have_is_not_there(admin: httpx2.Client, origin: dict[str, str]) -> None:
    answer = admin.post("/nodes/n1/scrapyd/cancel.json", data={"project": "nowhere", "job": "one"}, headers=origin)
    assert problem(answer) == (404, "not_found")
    assert "nowhere" in answer.json()["error"]["message"]


def test_what_is_possible_at_the_button_is_named(admin: httpx2.Client, origin: dict[str, str]) -> None:
    refused = admin.delete("/nodes/n1/scrapyd/cancel.json", headers=origin)
    assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, POST")


def test_a_job_of_ours_is_cancelled_as_ever_so_that_it_is_not_tried_again(
    admin: httpx2.Client, node: StandInNode, own: Database[dict[str, Any]], origin: dict[str, str]
) -> None:
    attempt = Attempt(attempt=1, node="n1", dispatched_at=utc_now())
    job = make_job(live_key=None, status=JobStatus.RUNNING, attempt=1, attempts={"1": attempt})
    JobStore(own).insert(job)
    before = len(node.cancelled)
    body = {"project": "default", "job": f"{job.id}-1"}
    assert admin.post("/nodes/n1/scrapyd/cancel.json", data=body, headers=origin).status_code == 303
    assert JobStore(own).get(job.id).cancel_requested_at is not None
    assert len(node.cancelled) == before


@pytest.mark.parametrize("told", [{}, {"Origin": "null"}, {"Origin": "http://evil.example"}, {"own": "cross-site"}])
def test_the_button_works_on_our_own_pages_alone(
    admin: httpx2.Client, node: StandInNode, origin: dict[str, str], told: dict[str, str]
) -> None:
    headers = {**origin, "Sec-Fetch-Site": told["own"]} if "own" in told else told
    before = len(node.asked)
    answer = admin.post("/nodes/n1/scrapyd/cancel.json", data={"project": "p", "job": "j"}, headers=headers)
    assert answer.status_code == 403
    assert len(node.asked) == before


def test_a_form_that_is_not_whole_is_refused(admin: httpx2.Client, origin: dict[str, str]) -> None:
    answer = admin.post("/nodes/n1/scrapyd/cancel.json", data={"project": "p"}, headers=origin)
    assert problem(answer) == (422, "invalid_request")


def test_a_header_that_is_no_text_stays_here(admin: httpx2.Client, node: StandInNode) -> None:
    assert admin.get("/nodes/n1/scrapyd/logs/a.log", headers={"Range": b"bytes=\xe9"}).status_code == 200
    assert "Range" not in node.asked[-1][2]
