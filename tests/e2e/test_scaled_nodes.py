"""Equal crawl nodes that share a volume and a tailer, as `docker compose up --scale scrapyd=2` starts them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sites.server import Site, html
from stack import ROOT, Stack, running_stack, wait_until
from stores import free_port

pytestmark = [pytest.mark.stack]

CRAWLS = 9


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("scaled") / "home", NODE_SLOTS="3") as stack:
        yield stack


class Replicas:
    def __init__(self, stack: Stack, folder: Path, ends: ExitStack) -> None:
        self._stack, self.folder, self._ends = stack, folder, ends
        self._log = ends.enter_context((folder.parent / "replicas.log").open("ab"))
        self._environment = {
            **stack.environment(),
            "NODES_DIR": str(folder),
            "NODE_NAME": "replica",
            "NODE_SLOTS": "3",
            "SCRAPYD_BIND_ADDRESS": "0.0.0.0",
        }

    def start(self, *command: str, **variables: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            (sys.executable, "-m", *command), cwd=ROOT, env={**self._environment, **variables},
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
        )  # fmt: skip
        self._ends.callback(_end, process)
        return process

    def start_scrapyd(self) -> subprocess.Popen[bytes]:
        # containers have the same port each; here they are on one host
        return self.start(
            "crawler.node.place", sys.executable, "-m", "scrapyd", "--pidfile=", SCRAPYD_PORT=str(free_port())
        )

    def known(self) -> dict[str, dict[str, Any]]:
        nodes = self._stack.http.get(f"{self._stack.url}/nodes").raise_for_status().json()["nodes"]
        return {node["name"]: node for node in nodes if node["name"].startswith("replica-")}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(60)


def test_replicas_are_nodes_of_their_own_and_what_one_left_is_shipped(
    stack: Stack, site: Site, tmp_path: Path
) -> None:
    for number in range(CRAWLS):
        site.pages[f"/c/{number}"] = html("", title=f"{number}")
    site.delay = 1.0
    with ExitStack() as ends:
        replicas = Replicas(stack, tmp_path / "nodes", ends)
        first = replicas.start_scrapyd()
        replicas.start_scrapyd()
        replicas.start("gateway.tailer")
        wait_until(lambda: len(replicas.known()) == 2, what="two replicas that are known")
        assert replicas.known().keys() == {"replica-1", "replica-2"}
        jobs = [stack.crawl(f"{site.url}/c/{number}") for number in range(CRAWLS)]
        assert {stack.wait_final(job)["status"] for job in jobs} == {"finished"}
        ran_on = {stack.job(job)["attempts"][-1]["node"] for job in jobs}
        assert {"replica-1", "replica-2"} < ran_on
        assert all(stack.log(job) for job in jobs)
        healthy = replicas.start("gateway.cli.main", "alive", "tailer")
        assert healthy.wait(90) == 0
        _end(first)
        url = replicas.known()["replica-1"]["url"], replicas.known()["replica-2"]["url"]
        replicas.start_scrapyd()
        wait_until(
            lambda: {node["url"] for node in replicas.known().values()} - {*url}, what="the place's new address"
        )
        assert replicas.known().keys() == {"replica-1", "replica-2"}


def test_signs_of_life_are_what_a_container_is_judged_by(stack: Stack) -> None:
    def ask(kind: str, **variables: str) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-m", "gateway.cli.main", "alive", kind)
        return subprocess.Popen(
            command, cwd=ROOT, env={**stack.environment(), **variables}, stderr=subprocess.DEVNULL
        )

    away = "mongodb://127.0.0.1:1/x?serverSelectionTimeoutMS=200"
    well = [ask(kind) for kind in ("worker", "beat", "tailer")]
    ill = [ask("tailer", NODE_NAME="nobody"), ask("worker", MONGO_URI=away)]
    assert [process.wait(90) for process in (*well, *ill)] == [0, 0, 0, 1, 1]
