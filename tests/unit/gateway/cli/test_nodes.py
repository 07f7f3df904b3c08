from __future__ import annotations

from typing import Any

from unit.gateway.cli.conftest import Answer, Run, StandIn

UP: dict[str, Any] = {
    "name": "n1",
    "url": "http://127.0.0.1:6800",
    "state": "up",
    "why": None,
    "todo": None,
    "failures": 0,
    "used_slots": 2,
    "max_slots": 4,
    "version": "0.1.0",
    "heartbeat_at": "2027-06-01T09:00:00.000Z",
}
BAD = {
    **UP,
    "name": "n 2",
    "state": "quarantined",
    "why": "3 failures [in a row]",
    "todo": "look there",
    "failures": 3,
}
BUSY = {**UP, "state": "draining", "waits_for": ["crawls that run there: 2"], "removable": False}
SHIPPING = {**BUSY, "waits_for": ["crawls that are not shipped in full: 1", "a sign of life"]}
EMPTY = {**BUSY, "waits_for": [], "removable": True}
AWAY = {"error": {"code": "unavailable", "message": "MongoDB is away"}, "request_id": "r"}
MISSING = {"url": "http://10.0.0.7:6800", "todo": "start it"}


def test_nodes_are_listed_with_what_is_to_be_done_about_them(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /nodes", Answer(200, {"nodes": [UP, BAD], "missing": [MISSING]}))
    done = run("nodes")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].split()[:4] == ["n1", "up", "2/4", "0"]
    assert "0.1.0" in lines[1]
    assert "quarantined" in lines[2]
    assert "n 2: look there" in done.stderr
    assert "no node is registered at http://10.0.0.7:6800: start it" in done.stderr


def test_a_node_is_drained_and_resumed_by_name(gateway: StandIn, run: Run) -> None:
    gateway.says("POST /nodes/n%202/drain", Answer(200, BUSY))
    gateway.says("POST /nodes/n%202/resume", Answer(200, UP))
    done = run("nodes", "drain", "n 2")
    assert (done.returncode, done.stdout) == (0, "n 2: draining; waits for crawls that run there: 2\n"), done.stderr
    done = run("nodes", "resume", "n 2")
    assert (done.returncode, done.stdout) == (0, "n 2: up\n"), done.stderr


def test_a_node_that_nobody_knows_is_refused_in_a_line(gateway: StandIn, run: Run) -> None:
    problem = {"error": {"code": "node_not_found", "message": "there is no node 'n9'"}, "request_id": "r"}
    gateway.says("POST /nodes/n9/drain", Answer(404, problem))
    done = run("nodes", "drain", "n9")
    assert (done.returncode, done.stderr) == (2, "error: there is no node 'n9'\n")


def test_a_drained_node_is_waited_for_and_each_reason_is_told_once(gateway: StandIn, run: Run) -> None:
    answers = [Answer(202, BUSY), Answer(202, BUSY), Answer(503, AWAY), Answer(202, SHIPPING), Answer(200, EMPTY)]
    gateway.says("POST /nodes/n1/drain", *answers)
    done = run("nodes", "drain", "n1", "--wait")
    assert (done.returncode, done.stdout) == (0, "n1: draining; its machine can be removed\n"), done.stderr
    assert done.stderr.splitlines() == [
        "waits for crawls that run there: 2",
        "waits for an answer: MongoDB is away",
        "waits for crawls that are not shipped in full: 1 and a sign of life",
    ]
    assert {request.query for request in gateway.asked("/nodes/n1/drain")} == {"wait=20.0"}


def test_a_node_is_waited_for_no_longer_than_asked(gateway: StandIn, run: Run) -> None:
    gateway.says("POST /nodes/n1/drain", Answer(202, BUSY))
    done = run("nodes", "drain", "n1", "--wait", "--timeout", "0.2")
    assert done.returncode == 1
    assert "timeout: after 0.2 s it still waits for crawls that run there: 2" in done.stderr
    assert run("nodes", "drain", "n1", "--timeout", "1").returncode == 2


def test_what_is_refused_is_not_asked_for_again(gateway: StandIn, run: Run) -> None:
    problem = {"error": {"code": "node_not_found", "message": "there is no node 'n9'"}, "request_id": "r"}
    gateway.says("POST /nodes/n9/drain", Answer(404, problem))
    done = run("nodes", "drain", "n9", "--wait")
    assert (done.returncode, done.stderr) == (2, "error: there is no node 'n9'\n")
    assert len(gateway.asked("/nodes/n9/drain")) == 1


def test_a_node_that_is_gone_is_forgotten(gateway: StandIn, run: Run) -> None:
    gateway.says("DELETE /nodes/n1", Answer(204))
    done = run("nodes", "forget", "n1")
    assert (done.returncode, done.stdout) == (0, "n1: forgotten\n"), done.stderr
