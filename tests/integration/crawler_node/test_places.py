"""Equal nodes on one volume: each takes a place of its own, and inherits what was left there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forms import first_in_short, in_full
from node import wait_for

from gateway.contract.node_list import NodePlace, is_taken, read_place

#: Stands in for Scrapyd: says as which node it was started, and lives until it is told to go.
STAND_IN = """
import json, os, sys
names = ("DISCOVERYBOT_HOME", "NODE_NAME", "NODE_URL")
print(json.dumps({name: os.environ[name] for name in names}), flush=True)
sys.stdin.read()
"""


class Replica:
    def __init__(self, folder: Path, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "crawler.node.place", sys.executable, "-c", STAND_IN],
            env={**os.environ, "NODES_DIR": str(folder), "NODE_NAME": "node", "SCRAPYD_PORT": "6801", **environ},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def told(self) -> dict[str, str]:
        assert self.process.stdout is not None
        told: dict[str, str] = json.loads(self.process.stdout.readline())
        return told

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def replicas() -> Iterator[list[Replica]]:
    started: list[Replica] = []
    yield started
    for replica in started:
        replica.kill()


def start(replicas: list[Replica], folder: Path, **environ: str) -> Replica:
    replicas.append(Replica(folder, **environ))
    return replicas[-1]


def test_each_of_several_equal_nodes_is_another_one(tmp_path: Path, replicas: list[Replica]) -> None:
    for _ in range(3):
        start(replicas, tmp_path)
    told = [replica.told() for replica in replicas]
    assert {one["NODE_NAME"] for one in told} == {"node-1", "node-2", "node-3"}
    for one in told:
        assert one["DISCOVERYBOT_HOME"] == str(tmp_path / one["NODE_NAME"])
        assert one["NODE_URL"] == f"http://{socket.gethostname()}:6801"


def test_what_its_tailer_cannot_know_stands_at_the_place(tmp_path: Path, replicas: list[Replica]) -> None:
    told = start(replicas, tmp_path, NODE_SLOTS="5", NODE_RENDER_SLOTS="1").told()
    home = Path(told["DISCOVERYBOT_HOME"])
    assert is_taken(home)
    assert read_place(home) == NodePlace(name="node-1", url=told["NODE_URL"], slots=5, render_slots=1)


def test_the_place_of_a_node_that_was_killed_goes_to_the_next(tmp_path: Path, replicas: list[Replica]) -> None:
    first, second = start(replicas, tmp_path), start(replicas, tmp_path)
    by_name = {replica.told()["NODE_NAME"]: replica for replica in (first, second)}
    by_name["node-1"].kill()
    assert not is_taken(tmp_path / "node-1")
    assert start(replicas, tmp_path).told()["NODE_NAME"] == "node-1"


@in_full("places that are taken, in the others here")
def test_looking_whether_a_place_is_taken_costs_nobody_the_place(tmp_path: Path, replicas: list[Replica]) -> None:
    start(replicas, tmp_path).told()
    replicas[0].kill()
    looks = subprocess.Popen([sys.executable, "-c", LOOKS, str(tmp_path / "node-1")])
    try:
        for _ in range(3):
            replica = start(replicas, tmp_path)
            assert replica.told()["NODE_NAME"] == "node-1"
            replica.kill()
    finally:
        looks.kill()
        looks.wait()


#: As a tailer does, but more often.
LOOKS = """
import sys, time
from pathlib import Path
from gateway.contract.node_list import is_taken
while True:
    is_taken(Path(sys.argv[1]))
    time.sleep(0.001)
"""


@pytest.mark.parametrize("point", first_in_short(["node.take_place.after", "node.note_place.after"]))
def test_a_node_killed_while_it_settles_leaves_its_place_to_the_next(
    tmp_path: Path, replicas: list[Replica], point: str
) -> None:
    plan = tmp_path / "plan"
    plan.mkdir()
    (plan / point).touch()
    nodes = tmp_path / "nodes"
    killed = start(replicas, nodes, DISCOVERYBOT_CRASH_PLAN=str(plan))
    assert killed.process.wait(60) == -signal.SIGKILL
    told = start(replicas, nodes, DISCOVERYBOT_CRASH_PLAN=str(plan)).told()
    assert told["NODE_NAME"] == "node-1"
    assert read_place(nodes / "node-1") is not None


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"NODES_DIR": "/proc/none"}, "NODES_DIR: /proc/none/node-1 cannot be used"),
        ({"NODE_SLOTS": "none"}, "NODE_SLOTS"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, replicas: list[Replica], environ: dict[str, str], said: str) -> None:
    replica = start(replicas, tmp_path, **environ)
    _, errors = replica.process.communicate(timeout=60)
    assert replica.process.returncode == 2
    assert said in errors.decode()
    assert "Traceback" not in errors.decode()


def test_no_folder_and_no_command_are_told(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("NODES_DIR", raising=False)
        homeless = subprocess.run([sys.executable, "-m", "crawler.node.place"], capture_output=True, check=False)
    assert (homeless.returncode, homeless.stderr.count(b"NODES_DIR is not set")) == (2, 1)
    done = subprocess.run(
        [sys.executable, "-m", "crawler.node.place", "no-such-command"],
        env={**os.environ, "NODES_DIR": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("no-such-command")) == (2, 1)
    wait_for(lambda: not is_taken(tmp_path / "node-1"))


@pytest.mark.parametrize("wrong", [{"name": "a\0b"}, {"name": "../n"}, {"url": "http://a\0b"}, {"url": "file:///x"}])
def test_what_a_spider_writes_there_instead_is_no_place(tmp_path: Path, wrong: dict[str, str]) -> None:
    place = {"name": "node-1", "url": "http://host:6800", "slots": 1, "render_slots": 1}
    (tmp_path / "place.json").write_text(json.dumps(place | wrong))
    assert read_place(tmp_path) is None
