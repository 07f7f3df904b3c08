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
MISSING = {"url": "http://10.0.0.7:6800", "todo": "start it"}


def test_nodes_are_listed_with_what_is_to_be_done_about_them(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /nodes", Answer(200, {"nodes": [UP, BAD], "missing": [MISSING]}))
    done = run("nodes")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].split()[:4] == ["n1", "up", "2/4", "0"]
    assert "quarantined" in lines[2]
    assert "n 2: look there" in done.stderr
    assert "no node is registered at http://10.0.0.7:6800: start it" in done.stderr


def test_a_node_is_drained_and_resumed_by_name(gateway: StandIn, run: Run) -> None:
    gateway.says("POST /nodes/n%202/drain", Answer(200, {**UP, "state": "draining"}))
    gateway.says("POST /nodes/n%202/resume", Answer(200, UP))
    done = run("nodes", "drain", "n 2")
    assert (done.returncode, done.stdout) == (0, "n 2: draining; 2 of its slots are in use\n"), done.stderr
    done = run("nodes", "resume", "n 2")
    assert (done.returncode, done.stdout) == (0, "n 2: up\n"), done.stderr


def test_a_node_that_nobody_knows_is_refused_in_a_line(gateway: StandIn, run: Run) -> None:
    problem = {"error": {"code": "node_not_found", "message": "there is no node 'n9'"}, "request_id": "r"}
    gateway.says("POST /nodes/n9/drain", Answer(404, problem))
    done = run("nodes", "drain", "n9")
    assert (done.returncode, done.stderr) == (2, "error: there is no node 'n9'\n")
