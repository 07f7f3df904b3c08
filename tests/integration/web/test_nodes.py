"""`/nodes`: what is said of each node, and who may drain and resume it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from pymongo.database import Database

from gateway.clock import utc_now
from gateway.contract.crawl import Egg
from gateway.contract.outbox import PROTOCOLS
from gateway.contract.records import SpiderInfo
from gateway.nodes.holds import HoldStore, Wish
from gateway.nodes.store import Failure, Node, NodeStore
from gateway.projects.eggs import SpiderStore
from gateway.settings import Settings
from gateway.stores.mongo import connect

Serve = Callable[[Settings], AbstractContextManager[httpx2.Client]]
URL = "http://127.0.0.1:6800"

pytestmark = pytest.mark.usefixtures("unhurried")


@pytest.fixture(scope="module")
def own_settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"mongo_uri": settings.mongo_uri.replace("/discoverybot", "/nodes")})


@pytest.fixture
def own(own_settings: Settings) -> Iterator[Database[dict[str, Any]]]:
    database = connect(own_settings.mongo_uri)
    for collection in ("nodes", "schedules", "holds"):
        database[collection].delete_many({})
    SpiderStore(database).publish("n1", [SpiderInfo(project="default", name="seo")])
    yield database
    database.client.close()


@pytest.fixture
def store(own: Database[dict[str, Any]]) -> NodeStore:
    return NodeStore(own)


@pytest.fixture
def door(serve: Serve, own_settings: Settings, own: object) -> Iterator[httpx2.Client]:
    with serve(own_settings) as client:
        yield client


def beat(nodes: NodeStore, name: str = "n1", **changes: Any) -> Node:
    facts = {"url": URL, "max_slots": 4, "alive": (), "present": (), "beating_since": utc_now(), **changes}
    nodes.heartbeat(name, **facts)
    node = nodes.get(name)
    assert node is not None
    return node


def fail(nodes: NodeStore, times: int, name: str = "n1") -> None:
    for _ in range(times):
        node = nodes.get(name)
        assert node is not None
        assert nodes.failed(node, Failure("nobody answers", utc_now()))


def told(door: httpx2.Client, name: str = "n1") -> dict[str, Any]:
    nodes = {node["name"]: node for node in door.get("/nodes").raise_for_status().json()["nodes"]}
    node: dict[str, Any] = nodes[name]
    return node


def check(door: httpx2.Client, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = door.get("/health").json()["checks"][name]
    return answer


def test_a_node_that_is_well_says_how_much_it_does(
    door: httpx2.Client, store: NodeStore, own: Database[dict[str, Any]]
) -> None:
    beat(store, eggs=[Egg("shop", "1.4")], version="1.0")
    assert HoldStore(own).take([Wish("node:n1", "a-1", 4)], "t")
    node = told(door)
    assert (node["state"], node["why"], node["todo"], node["failures"]) == ("up", None, None, 0)
    assert (node["load"], node["used_slots"], node["free_slots"]) == (0.25, 1, 3)
    assert node["eggs"] == [{"project": "shop", "version": "1.4"}]


def test_a_node_of_another_protocol_is_named(door: httpx2.Client, store: NodeStore) -> None:
    beat(store, protocols=[max(PROTOCOLS) + 1], version="9.0.0")
    assert told(door)["state"] == "incompatible"
    health = check(door, "node_states")
    assert (health["status"], health["message"]) == ("down", "too old or too new for this version: n1 (9.0.0)")


@pytest.mark.parametrize(("failures", "state"), [(1, "resting"), (2, "resting"), (3, "quarantined")])
def test_a_node_that_failed_says_how_often_and_why_and_since_when(
    door: httpx2.Client, store: NodeStore, failures: int, state: str
) -> None:
    beat(store)
    fail(store, failures)
    node = told(door)
    assert (node["state"], node["failures"]) == (state, failures)
    assert "nobody answers" in node["why"]
    assert node["since"] <= node["rest_until"]
    assert "nodes resume n1" in node["todo"]
    health = check(door, "node_states")
    assert health["status"] == ("down" if state == "quarantined" else "ok")
    assert "nobody answers" not in str(health)
    assert check(door, "nodes")["message"] == f"1 alive, 1 {state}, 0 free slots"
    assert door.get("/jobs/health").json()["nodes"] == {state: 1}


def test_a_drained_node_stays_drained_until_it_is_resumed(door: httpx2.Client, store: NodeStore) -> None:
    beat(store)
    beat(store, "n2")
    answer = door.post("/nodes/n1/drain")
    assert (answer.status_code, answer.json()["state"], answer.json()["draining"]) == (200, "draining", True)
    since = answer.json()["since"]
    assert door.post("/nodes/n1/drain").json()["since"] == since
    beat(store, beating_since=utc_now())
    assert told(door)["state"] == "draining"
    assert check(door, "nodes") == {"status": "ok", "message": "2 alive, 1 draining, 4 free slots", "todo": None}
    assert door.get("/jobs/health").json()["free_slots"] == 4
    assert check(door, "node_states")["status"] == "ok"
    door.post("/nodes/n2/drain")
    assert check(door, "node_states")["message"] == "no node is available"
    assert door.post("/nodes/n1/resume").json()["state"] == "up"
    assert told(door)["state"] == "up"


def test_a_node_that_gives_no_sign_of_life_is_missed_unless_it_was_drained(
    door: httpx2.Client, store: NodeStore, own: Database[dict[str, Any]]
) -> None:
    beat(store)
    beat(store, "n2")
    fail(store, 3, "n2")
    silent_since = utc_now() - timedelta(seconds=16)
    own["nodes"].update_one({"_id": "n1"}, {"$set": {"heartbeat_at": silent_since}})
    missed = check(door, "node_states")
    assert missed["status"] == "down"
    assert re.fullmatch(r"no sign of life from n1 \(1\d s\); quarantined: n2 \(3 failures\)", missed["message"])
    assert "nodes forget NAME" in missed["todo"]
    door.post("/nodes/n1/drain")
    assert check(door, "node_states")["message"] == "quarantined: n2 (3 failures)"


def test_whoever_resumes_a_node_has_its_failures_forgotten_and_it_is_probed_next(
    door: httpx2.Client, store: NodeStore
) -> None:
    beat(store)
    fail(store, 9)
    before = told(door)["rest_until"]
    after = door.post("/nodes/n1/resume").json()
    assert (after["state"], after["failures"], after["why"]) == ("resting", 0, "next probe is due")
    assert after["rest_until"] < before


def test_a_drained_node_is_waited_for_until_all_that_it_had_is_shipped(
    door: httpx2.Client, store: NodeStore, own: Database[dict[str, Any]]
) -> None:
    beat(store)
    holds = HoldStore(own)
    assert holds.take([Wish("node:n1", "a-1", 4)], "t")
    runs = door.post("/nodes/n1/drain", params={"wait": 0})
    assert (runs.status_code, runs.headers["location"]) == (202, "/nodes/n1")
    assert runs.json()["waits_for"][0] == "running crawls: 1"
    holds.free("a-1", ["node:n1"])
    time.sleep(0.002)  # stored times are in milliseconds, and only a later heartbeat counts
    beat(store, unshipped=1)
    ships = door.get("/nodes/n1").json()
    assert (ships["removable"], ships["waits_for"]) == (False, ["crawls that are not stored in full: 1"])
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(door.post, "/nodes/n1/drain", params={"wait": 30})
        while not waits.done():
            # only a heartbeat after the end of the node's last crawl counts: an earlier one may lack its files
            beat(store, unshipped=0)
        empty = waits.result()
    assert (empty.status_code, empty.json()["removable"], empty.json()["waits_for"]) == (200, True, [])
    assert door.get("/nodes/n1").json()["why"] == "drained by hand; safe to stop"


def test_a_drained_node_that_is_silent_is_not_taken_for_empty(door: httpx2.Client, store: NodeStore) -> None:
    beat(store)
    answer = door.post("/nodes/n1/drain", params={"wait": 0.3})
    assert (answer.status_code, answer.json()["removable"]) == (202, False)
    assert answer.json()["waits_for"][0].startswith("a sign of life")


def test_a_node_is_forgotten_once_it_is_gone_and_one_of_its_name_is_not_drained(
    door: httpx2.Client, store: NodeStore, own: Database[dict[str, Any]]
) -> None:
    beat(store)
    door.post("/nodes/n1/drain")
    assert problem_of(door.delete("/nodes/n1")) == (409, "conflict")
    own["nodes"].update_one({"_id": "n1"}, {"$set": {"heartbeat_at": utc_now() - timedelta(hours=1)}})
    holds = HoldStore(own)
    holds.open("node:n1")
    assert holds.take([Wish("node:n1", "a-1", 4)], "t")
    assert problem_of(door.delete("/nodes/n1")) == (409, "conflict")
    holds.free("a-1", ["node:n1"])
    holds.close("node:n1")
    assert door.delete("/nodes/n1").status_code == 204
    assert problem_of(door.delete("/nodes/n1")) == (404, "node_not_found")
    beat(store)
    assert told(door)["state"] == "up"
    assert holds.take([Wish("node:n1", "a-2", 4)], "t")


def test_a_node_that_lives_again_while_it_is_forgotten_is_still_there(
    door: httpx2.Client, store: NodeStore, own: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(store)
    own["nodes"].update_one({"_id": "n1"}, {"$set": {"heartbeat_at": utc_now() - timedelta(hours=1)}})
    forget = NodeStore.forget

    def late(self: NodeStore, node: Node) -> bool:
        beat(store)
        return forget(self, node)

    monkeypatch.setattr(NodeStore, "forget", late)
    assert problem_of(door.delete("/nodes/n1")) == (409, "conflict")
    assert told(door)["state"] == "up"


def problem_of(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize("what", ["drain", "resume"])
def test_there_is_nothing_to_be_done_with_a_node_that_nobody_knows(door: httpx2.Client, what: str) -> None:
    answer = door.post(f"/nodes/nobody/{what}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "node_not_found")
    # the call has made no such node
    assert door.get("/nodes").json()["nodes"] == []


def test_a_node_that_died_says_when_it_was_heard_of_last(door: httpx2.Client, own: Database[dict[str, Any]]) -> None:
    beat(NodeStore(own, lambda: utc_now() - timedelta(hours=1)))
    node = told(door)
    assert (node["state"], node["healthy"], node["since"]) == ("dead", False, node["heartbeat_at"])


def test_a_list_of_nodes_is_held_against_those_that_are_there(
    serve: Serve, own_settings: Settings, store: NodeStore
) -> None:
    beat(store, "listed")
    beat(store, "other", url="http://10.0.0.9:6800")
    scrapyds = (f"{URL}/", "http://10.0.0.7:6800")
    with serve(own_settings.model_copy(update={"scrapyd_url": scrapyds})) as door:
        assert (told(door, "listed")["state"], told(door, "other")["state"]) == ("up", "not_listed")
        assert "http://10.0.0.9:6800" in told(door, "other")["why"]
        assert [one["url"] for one in door.get("/nodes").json()["missing"]] == ["http://10.0.0.7:6800"]
        health = check(door, "node_list")
        assert (health["status"], "2 nodes in SCRAPYD_URL, 1" in health["message"]) == ("down", True)
        assert "NODE_URL" in health["todo"]
        # everybody may see the report, so it names no address
        assert "10.0.0" not in str(health)
        beat(store, "late", url="http://10.0.0.7:6800")
        health = check(door, "node_list")
        assert (health["status"], health["message"].endswith("they get no work: other")) == ("ok", True)
        assert "10.0.0" not in str(health)


def test_an_occurrence_that_nobody_fires_is_late(door: httpx2.Client, own: Database[dict[str, Any]]) -> None:
    assert check(door, "schedules")["status"] == "ok"
    late = utc_now() - timedelta(seconds=30)
    own["schedules"].insert_one({"_id": "s", "next_run": late, "state": "active"})
    answer = check(door, "schedules")
    assert (answer["status"], answer["message"]) == ("down", "late schedules: 1, the first by 30 s")
    assert "beat" in answer["todo"]
