"""One tailer for all nodes that share a folder. It runs a process for each node while there is something to ship."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.contract.node_list import PLACE, PLACE_LOCK, NodePlace
from gateway.tailer.__main__ import Places

#: Stands in for a node's tailer: leaves a note of how it was started, and ends when it is told to.
STAND_IN = """
import json, os, signal, sys
from pathlib import Path
names = ("DISCOVERYBOT_HOME", "NODE_NAME", "NODE_URL", "NODE_SLOTS", "NODE_RENDER_SLOTS", "NODES_DIR", "MONGO_URI")
notes = Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
told = {"pid": os.getpid(), **{name: os.environ.get(name) for name in names}}
(notes / f".{os.getpid()}").write_text(json.dumps(told))
(notes / f".{os.getpid()}").rename(notes / str(os.getpid()))
signal.pause()
"""


def eventually(question: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return answer


class Shared:
    def __init__(self, folder: Path) -> None:
        self.folder, self.notes = folder / "nodes", folder / "notes"
        self.folder.mkdir()
        self.notes.mkdir()
        self._locks: dict[str, int] = {}

    def settle(self, name: str, url: str = "http://here:6800") -> None:
        """Lock the node's place and describe it, as a node does at its start."""
        home = self.folder / name
        (home / "node/outbox").mkdir(parents=True, exist_ok=True)
        self._locks[name] = lock = os.open(home / PLACE_LOCK, os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (home / PLACE).write_text(NodePlace(name=name, url=url, slots=3, render_slots=1).model_dump_json())

    def leave(self, name: str) -> None:
        os.close(self._locks.pop(name))

    def started(self, name: str) -> list[dict[str, Any]]:
        """The notes of all tailers that were started for this node."""
        found = [json.loads(note.read_bytes()) for note in self.notes.glob("[0-9]*")]
        return [tailer for tailer in found if tailer["NODE_NAME"] == name]

    def alive(self, name: str) -> list[dict[str, Any]]:
        return [tailer for tailer in self.started(name) if Path(f"/proc/{tailer['pid']}/exe").exists()]


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    shared = Shared(tmp_path)
    environ = {**os.environ, "NODES_DIR": str(shared.folder), "MONGO_URI": "mongodb://truth/x"}
    places = Places(shared.folder, (sys.executable, "-S", "-c", STAND_IN, str(shared.notes)), environ)
    thread = threading.Thread(target=places.run)
    thread.start()
    yield shared
    places.stop()
    thread.join()
    assert not [note for note in shared.notes.glob("[0-9]*") if Path(f"/proc/{note.name}/exe").exists()]


def test_each_node_has_a_tailer_that_speaks_for_it(shared: Shared) -> None:
    shared.settle("node-1")
    shared.settle("node-2", "http://there:6800")
    (second,) = eventually(lambda: shared.alive("node-2"))
    assert second == {
        "pid": second["pid"],
        "DISCOVERYBOT_HOME": str(shared.folder / "node-2"),
        "NODE_NAME": "node-2",
        "NODE_URL": "http://there:6800",
        "NODE_SLOTS": "3",
        "NODE_RENDER_SLOTS": "1",
        "NODES_DIR": None,
        "MONGO_URI": "mongodb://truth/x",
    }
    assert eventually(lambda: shared.alive("node-1"))


def test_one_that_dies_is_started_again(shared: Shared) -> None:
    shared.settle("node-1")
    (first,) = eventually(lambda: shared.alive("node-1"))
    os.kill(first["pid"], signal.SIGKILL)
    assert eventually(lambda: [one for one in shared.alive("node-1") if one["pid"] != first["pid"]])


def test_a_node_that_is_gone_is_served_until_its_files_are(shared: Shared) -> None:
    shared.settle("node-1")
    left = shared.folder / "node-1/node/outbox" / f"{'0' * 32}-1"
    left.mkdir()
    (tailer,) = eventually(lambda: shared.alive("node-1"))
    shared.leave("node-1")
    shared.settle("node-2")
    eventually(lambda: shared.alive("node-2"))
    assert shared.alive("node-1") == [tailer]
    left.rmdir()
    eventually(lambda: not shared.alive("node-1"))


def test_whoever_takes_the_place_over_gets_a_tailer_that_knows_its_address(shared: Shared) -> None:
    shared.settle("node-1")
    eventually(lambda: shared.alive("node-1"))
    shared.leave("node-1")
    shared.settle("node-1", "http://elsewhere:6800")
    told = eventually(lambda: [one["NODE_URL"] for one in shared.alive("node-1") if "elsewhere" in one["NODE_URL"]])
    assert told == ["http://elsewhere:6800"]


def test_a_folder_of_something_else_is_left_alone(shared: Shared) -> None:
    (shared.folder / "lost+found").mkdir()
    (shared.folder / "torn").mkdir()
    (shared.folder / "torn" / PLACE).write_text("{")
    shared.settle("node-1")
    eventually(lambda: shared.alive("node-1"))
    assert len(list(shared.notes.glob("[0-9]*"))) == 1


def test_the_tailer_is_told_of_the_folder_by_its_setting(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.tailer"],
        env={**os.environ, "NODES_DIR": str(tmp_path), "DISCOVERYBOT_HOME": str(tmp_path / "nobodys")},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    assert b"tailing_places" in process.stdout.readline()
    process.terminate()
    process.communicate()
    assert process.returncode == 0
    assert not (tmp_path / "nobodys").exists()
