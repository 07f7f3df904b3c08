"""Crawl nodes beside a running stack: each has a Scrapyd and a tailer, and its own name, port and folder."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import warm
from stack import ROOT, START_TIMEOUT, Stack, wait_until
from stores import free_port
from warm import WarmProcess

from crawler.node.started_mark import read_mark
from gateway.contract.outbox import is_locked

#: Seconds for a process to end by itself. Scrapyd ends its spiders first.
STOP_TIMEOUT = 60.0


class ExtraNode:
    """One node. Its processes are not started again: one that a test kills stays dead until the test starts it."""

    def __init__(self, stack: Stack, name: str, **variables: str) -> None:
        self.name, self.home = name, stack.home / "nodes" / name
        self.port = free_port()
        self.home.mkdir(parents=True)
        self._stack = stack
        own = {"NODE_NAME": name, "SCRAPYD_PORT": str(self.port), "DISCOVERYBOT_HOME": str(self.home)}
        self._environment = {**stack.environment(), **own, **variables}
        self.scrapyd: WarmProcess | subprocess.Popen[bytes] | None = None
        self.tailer: WarmProcess | subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def outbox(self) -> Path:
        return self.home / "node" / "outbox"

    def start(self) -> None:
        """Start the processes without waiting for them (see `wait_until_ready`)."""
        self.start_scrapyd()
        self.start_tailer()

    def start_scrapyd(self) -> None:
        self.scrapyd = self._started("scrapyd", "--pidfile=")

    def start_tailer(self) -> None:
        self.tailer = self._started("gateway.tailer")

    def _started(self, module: str, *arguments: str) -> WarmProcess | subprocess.Popen[bytes]:
        log = self.home / f"{module}.log"
        if "PYTHONPATH" not in self._environment:  # otherwise it has to find a module there when it starts
            return warm.start(f"{module}.__main__", *arguments, env=self._environment, cwd=ROOT, stdout=log)
        with log.open("ab") as file:
            return subprocess.Popen(
                (sys.executable, "-m", module, *arguments), cwd=ROOT, env=self._environment,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip

    def wait_until_ready(self) -> None:
        """Wait until Scrapyd answers and the gateway knows the node."""
        wait_until(lambda: self.answers() and self.is_known(), timeout=START_TIMEOUT, what=f"node {self.name}")

    def answers(self) -> bool:
        for process in (self.scrapyd, self.tailer):
            assert process is None or process.poll() is None, self.log()
        ready = self._stack.ready
        key = (ready["scrapyd_username"], ready["scrapyd_password"])
        return self._stack.http.get(f"{self.url}/daemonstatus.json", auth=key).status_code == httpx2.codes.OK

    def is_known(self) -> bool:
        """Whether the gateway knows it from its tailer."""
        nodes = self._stack.http.get(f"{self._stack.url}/nodes").raise_for_status().json()["nodes"]
        return self.name in {node["name"] for node in nodes}

    def log(self) -> str:
        """The last output of its processes."""
        return "\n".join(f"{path.name}:\n{path.read_text()[-4000:]}" for path in sorted(self.home.glob("*.log")))

    def processes(self) -> list[psutil.Process]:
        """All living processes: Scrapyd and tailer, and what they started or forked."""
        found = []
        for process in psutil.process_iter(["environ", "status"]):
            ours = (process.info["environ"] or {}).get("DISCOVERYBOT_HOME") == str(self.home)
            if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        return found

    def kill(self) -> None:
        """Send SIGKILL to everything, as if the machine lost its power. Returns once all processes are gone."""
        # processes that Scrapyd started are found by their environment; Scrapyd's own may be unreadable for us
        for process in (self.scrapyd, self.tailer):
            if process is not None:
                process.kill()
        while left := self.processes():
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self._reap()

    def stop(self) -> None:
        """Stop the node as an operator would. Nothing is left at the end."""
        for process in (self.scrapyd, self.tailer):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._reap()
        self.kill()

    def _reap(self) -> None:
        for process in (self.scrapyd, self.tailer):
            if process is not None:
                process.wait(STOP_TIMEOUT)


@contextmanager
def nodes_beside(stack: Stack, *names: str, **variables: str) -> Iterator[list[ExtraNode]]:
    """Nodes that are ready, beside the stack's own one. `variables` go into the environment of each."""
    with ExitStack() as ends:
        nodes = [ExtraNode(stack, name, **variables) for name in names]
        for node in nodes:
            ends.callback(node.stop)
            node.start()
        for node in nodes:
            node.wait_until_ready()
        yield nodes


def own_node(stack: Stack) -> dict[str, Any]:
    """The stack's own node, as the gateway shows it."""
    nodes = stack.http.get(f"{stack.url}/nodes").raise_for_status().json()["nodes"]
    return next(node for node in nodes if node["url"] == stack.ready["scrapyd_url"])


def spiders(stack: Stack, job: str = "") -> list[int]:
    """Process ids of the spiders on the stack's own node, or of the spider of one job."""
    marks = (stack.home / "node/outbox").glob(f"{job}*/started")
    folders = [path.parent for path in marks if is_locked(path.parent)]
    return [pid for pid, _ in map(read_mark, folders) if pid]
