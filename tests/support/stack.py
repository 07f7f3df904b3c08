"""The whole platform for a test: `discoverybot up` on free ports, in a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import warm
from warm import WarmProcess

ROOT = Path(__file__).parents[2]
#: Seconds to start. It is generous, because machines are shared; usually a fraction is enough.
START_TIMEOUT = 90.0
FINAL = frozenset({"finished", "partial", "error", "cancelled"})

Value = TypeVar("Value")


def wait_until(question: Callable[[], Value | None], *, timeout: float = 60.0, what: str = "it") -> Value:
    """The first truthy answer. Asks again while the answer is false or `question` raises an error of the connection;
    fails after `timeout` seconds.

    The intervals between two calls grow, because each call takes processor time that others share.
    """
    began = time.monotonic()
    last: object = None
    while (waited := time.monotonic() - began) < timeout:
        try:
            if last := question():
                return last  # type: ignore[return-value]  # truthy, so not None
        except (httpx2.TransportError, OSError) as error:
            last = error
        time.sleep(min(0.05 + waited / 20, 0.25))
    raise AssertionError(f"{what} did not happen within {timeout} s; last: {last!r}")


class Stack:
    def __init__(self, home: Path, process: WarmProcess | subprocess.Popen[bytes], output: Path) -> None:
        self.home = home
        self.process = process
        self.output = output
        # without limits on connections: with them, a connection may be closed that a thread has just received, and
        # its request then waits for its whole time-out (httpcore#1110)
        self.http = httpx2.Client(timeout=30, limits=httpx2.Limits(keepalive_expiry=None), trust_env=False)

    @property
    def ready(self) -> dict[str, Any]:
        """The stack's file about itself, which it rewrites whenever a process is started again."""
        described: dict[str, Any] = json.loads((self.home / "ready.json").read_bytes())
        return described

    @property
    def url(self) -> str:
        return str(self.ready["gateway_url"])

    def environment(self) -> dict[str, str]:
        """The environment for a further process of the platform beside the stack's own."""
        ready = self.ready
        return {
            **os.environ,
            "DISCOVERYBOT_HOME": str(self.home),
            "MONGO_URI": ready["mongo_uri"],
            "REDIS_URL": ready["redis_url"],
            "BROKER_URL": ready["broker_url"],
            "SCRAPYD_USERNAME": ready["scrapyd_username"],
            "SCRAPYD_PASSWORD": ready["scrapyd_password"],
            "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
        }

    def kill(self, name: str, signum: int = signal.SIGKILL) -> None:
        os.kill(self.ready["pids"][name], signum)

    def wait_for_another(self, name: str, pid: int) -> None:
        """Wait until the process of that name is another one than `pid`. Meanwhile there is none."""
        wait_until(lambda: self.ready["pids"].get(name) not in (None, pid), what=f"another {name}")

    def crawl(self, url: str, **fields: Any) -> str:
        body = {"user_id": "tester", "spider": "seo", "start_urls": [url], **fields}
        answer = self.http.post(f"{self.url}/crawl", json=body)
        assert answer.status_code == httpx2.codes.OK, answer.text
        return str(answer.json()["job_id"])

    def status(self, job_id: str) -> dict[str, Any]:
        answer = self.http.get(f"{self.url}/jobs/{job_id}/status")
        assert answer.status_code == httpx2.codes.OK, answer.text
        described: dict[str, Any] = answer.json()
        return described

    def job(self, job_id: str) -> dict[str, Any]:
        described: dict[str, Any] = self.http.get(f"{self.url}/jobs/{job_id}").raise_for_status().json()
        return described

    def wait_final(self, job_id: str, *, timeout: float = 60.0) -> dict[str, Any]:
        def final() -> dict[str, Any] | None:
            status = self.status(job_id)
            return status if status["status"] in FINAL else None

        return wait_until(final, timeout=timeout, what=f"the end of job {job_id}")

    def wait_begun(self, job_id: str, *, timeout: float = 60.0) -> None:
        """Wait until the first attempt has begun. If it does not, the error has what the platform says
        about the job.
        """
        try:
            wait_until(lambda: self.status(job_id)["started_at"], timeout=timeout, what="the beginning")
        except AssertionError as error:
            raise AssertionError(f"{error}; the job: {self.job(job_id)}; of nodes: {self.check('nodes')}") from error

    def check(self, name: str) -> dict[str, str]:
        """One of the checks of `GET /health`."""
        found: dict[str, str] = self.http.get(f"{self.url}/health").json()["checks"][name]
        return found

    def items(self, job_id: str) -> list[dict[str, Any]]:
        text = self.http.get(f"{self.url}/jobs/{job_id}/items", params={"format": "jsonl"}).raise_for_status().text
        return [json.loads(line) for line in text.splitlines()]

    def log(self, job_id: str) -> bytes:
        answer = self.http.get(f"{self.url}/jobs/{job_id}/logs", headers={"Accept": "text/plain"})
        return answer.raise_for_status().content

    def last_words(self, lines: int = 40) -> str:
        """The last output of the platform's processes."""
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])

    def log_on_node(self, job_id: str, attempt: int = 1) -> bytes:
        return (self.home / "node" / "outbox" / f"{job_id}-{attempt}" / "crawl.log").read_bytes()


@contextmanager
def running_stack(
    home: Path, *, forked: bool = True, only: Sequence[str] = (), joined: bool = False, **variables: str
) -> Iterator[Stack]:
    """A healthy platform, or `only` some of its processes, or a node that has `joined` another platform.

    At the end it is stopped by Ctrl-C, as by a user, and nothing may be left running. By default it is forked from a
    warm process.
    """
    home.mkdir(parents=True, exist_ok=True)
    ready = home / "ready.json"
    ready.unlink(missing_ok=True)
    output = home / "up.log"
    environment = {**os.environ, "DISCOVERYBOT_HOME": str(home), "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8", **variables}
    # others have to know the address of a node
    free_ports = () if joined or "scrapyd" in only else ("--free-ports",)
    arguments = ("up", "--verbose", *free_ports, *(f"--only={name}" for name in only), "--ready-file", str(ready))
    if forked:
        process = warm.start("gateway.cli.main", *arguments, env=environment, cwd=ROOT, stdout=output)
    else:
        process = _started(arguments, environment, output)
    stack = Stack(home, process, output)
    try:
        wait_until(lambda: _is_up(stack), timeout=START_TIMEOUT, what="a healthy stack")
        yield stack
    finally:
        stack.http.close()
        _stop(process)


def _started(arguments: tuple[str, ...], environment: dict[str, str], output: Path) -> subprocess.Popen[bytes]:
    command = (str(Path(sys.executable).with_name("discoverybot")), *arguments)
    with output.open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)


def _is_up(stack: Stack) -> bool:
    if (code := stack.process.poll()) is not None:
        raise AssertionError(f"the stack ended with {code}:\n{stack.output.read_text()[-4000:]}")
    return (stack.home / "ready.json").exists()


def _stop(process: WarmProcess | subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(45)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        raise
