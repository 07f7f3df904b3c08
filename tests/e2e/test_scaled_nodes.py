"""Equal crawl nodes that share a volume and a tailer, as `docker compose up --scale scrapyd=2` starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import warm
from crawl_verifier import CrawlVerifier
from forms import in_full
from sites.gated import GatedSite
from stack import ROOT, Stack, running_stack, wait_until
from stores import free_port
from warm import WarmProcess

pytestmark = [pytest.mark.stack]

#: Of each node.
SLOTS = 3
#: As many as all three nodes can take.
CRAWLS = 3 * SLOTS


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("scaled") / "home", NODE_SLOTS=str(SLOTS)) as stack:
        yield stack


class Replicas:
    def __init__(self, stack: Stack, folder: Path, ends: ExitStack) -> None:
        self._stack, self.folder, self._ends = stack, folder, ends
        self._log = folder.parent / "replicas.log"
        self._environment = {
            **stack.environment(),
            "NODES_DIR": str(folder),
            "NODE_NAME": "replica",
            "NODE_SLOTS": str(SLOTS),
            "SCRAPYD_BIND_ADDRESS": "0.0.0.0",
        }

    def start(self, module: str, *arguments: str) -> WarmProcess:
        process = warm.start(module, *arguments, env=self._environment, cwd=ROOT, stdout=self._log)
        self._ends.callback(_end, process)
        return process

    def start_scrapyd(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                (sys.executable, "-m", "crawler.node.place", sys.executable, "-m", "scrapyd", "--pidfile="), cwd=ROOT,
                # containers have the same port each; here they are on one host
                env={**self._environment, "SCRAPYD_PORT": str(free_port())},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._ends.callback(_end, process)
        return process

    def known(self) -> dict[str, dict[str, Any]]:
        nodes = self._stack.http.get(f"{self._stack.url}/nodes").raise_for_status().json()["nodes"]
        return {node["name"]: node for node in nodes if node["name"].startswith("replica-")}


def _end(process: WarmProcess | subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(60)


@in_full("places of nodes in crawler_node/test_places.py and tailer/test_places.py")
def test_replicas_are_nodes_of_their_own_and_what_one_left_is_shipped(stack: Stack, tmp_path: Path) -> None:
    with ExitStack() as ends:
        site = ends.enter_context(GatedSite())
        verifier = ends.enter_context(CrawlVerifier(stack, site))
        replicas = Replicas(stack, tmp_path / "nodes", ends)
        first = replicas.start_scrapyd()
        replicas.start_scrapyd()
        replicas.start("gateway.tailer.__main__")
        wait_until(lambda: len(replicas.known()) == 2, what="two replicas that are known")
        assert replicas.known().keys() == {"replica-1", "replica-2"}
        verifier.begin(CRAWLS)
        wait_until(lambda: site.under_way == CRAWLS, what="crawls in all slots")
        site.open()
        verifier.check_each_once()
        ran_on = Counter(stack.job(job)["attempts"][-1]["node"] for job in verifier.jobs.values())
        assert (ran_on["replica-1"], ran_on["replica-2"]) == (SLOTS, SLOTS)
        assert all(stack.log(job) for job in verifier.jobs.values())
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
    def ask(kind: str, **variables: str) -> WarmProcess:
        env = {**stack.environment(), **variables}
        return warm.start("gateway.cli.main", "alive", kind, env=env, cwd=ROOT, stdout=Path(os.devnull))

    away = "mongodb://127.0.0.1:1/x?serverSelectionTimeoutMS=200"
    well = [ask(kind) for kind in ("worker", "beat", "tailer")]
    ill = [ask("tailer", NODE_NAME="nobody"), ask("worker", MONGO_URI=away)]
    assert [process.wait(90) for process in (*well, *ill)] == [0, 0, 0, 1, 1]
