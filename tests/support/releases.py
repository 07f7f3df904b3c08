"""Several releases of the platform at once: processes of different versions' sources, on shared stores."""

from __future__ import annotations

import compileall
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

import httpx2
import pytest
import warm
from machine import missing
from stack import ROOT, START_TIMEOUT, Stack, wait_until
from stores import embedded_mongo, free_port, valkey_server
from warm import WarmProcess

#: The command with which `discoverybot up` starts them.
_CELERY = ("celery", "--quiet", "-A", "celery_app")
_PROCESSES: dict[str, tuple[str, ...]] = {
    "scrapyd": ("scrapyd", "--pidfile="),
    "tailer": ("gateway.tailer",),
    "worker": (*_CELERY, "worker"),
    "beat": (*_CELERY, "beat"),
    "gateway": ("gateway.web",),
}
FRONT = ("gateway", "worker", "beat")
NODE = ("scrapyd", "tailer")
_RELEASE = re.compile(
    r"^## \[(?P<version>\d+\.\d+\.\d+)\].*\n+(?:.*as of commit (?P<commit>[0-9a-f]{7,40}))?", re.MULTILINE
)
#: Seconds that a process may take to end.
_STOP_TIMEOUT = 45.0


class Release(NamedTuple):
    """The source of a version in a folder."""

    version: str
    tree: Path

    @property
    def protocols(self) -> frozenset[int]:
        """The protocols that its nodes support, according to its source."""
        contract = (self.tree / "gateway/contract/outbox.py").read_text(encoding="utf-8")
        found = re.search(r"^PROTOCOLS = frozenset\(\{(.*)\}\)$", contract, re.MULTILINE)
        assert found, "the release does not say which protocols it speaks"
        return frozenset(map(int, found[1].split(",")))


def last_release(folder: Path) -> Release:
    """Put the last release in CHANGELOG into `folder`, by the commit that it names, or else by its tag. It runs with
    today's packages.
    """
    found = _RELEASE.search((ROOT / "CHANGELOG.md").read_text())
    assert found, "CHANGELOG names no release"
    commit = found["commit"] or f"v{found['version']}"
    packed = subprocess.run(("git", "archive", commit), cwd=ROOT, check=False, capture_output=True)
    if packed.returncode:
        _not_here(f"the last release, {commit}, is not in this clone: git fetch --unshallow")
    # `tar`, because `extractall` of Python 3.11.2 (Debian 12) has no `filter` yet
    subprocess.run(("tar", "--extract", "--directory", folder), input=packed.stdout, check=True)
    # the source asks the installed package for its version; without this, that would be today's
    metadata = folder / f"discoverybot-{found['version']}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.4\nName: discoverybot\nVersion: {found['version']}\n")
    # otherwise each of its processes, which start at the same time, would compile the source
    for package in ("crawler", "embedded", "gateway"):
        compileall.compile_dir(folder / package, quiet=2)
    return Release(found["version"], folder)


def _not_here(reason: str) -> NoReturn:
    asked = ("git", "rev-parse", "--is-shallow-repository")
    if subprocess.run(asked, cwd=ROOT, check=False, capture_output=True, text=True).stdout.strip() == "false":
        # a clone with the whole history, but without this commit
        missing(reason)
    pytest.skip(reason)


TODAY = Release("today", ROOT)


class Part(Stack):
    """Some processes in a folder of their own, each of any release. They are not restarted when they end."""

    def __init__(self, home: Path, variables: Mapping[str, str]) -> None:
        self.home, self.name = home, home.name
        home.mkdir(parents=True, exist_ok=True)
        ports = {"GATEWAY_PORT": str(free_port()), "SCRAPYD_PORT": str(free_port())}
        own = {"DISCOVERYBOT_HOME": str(home), "NODE_NAME": home.name, "PYTHONUNBUFFERED": "1"}
        self._environment = {**os.environ, **variables, **own, **ports}
        self._processes: dict[str, subprocess.Popen[bytes] | WarmProcess] = {}
        self.http = httpx2.Client(timeout=30, limits=httpx2.Limits(keepalive_expiry=None), trust_env=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._environment['GATEWAY_PORT']}"

    def environment(self) -> dict[str, str]:
        return self._environment

    def start(self, release: Release, *names: str) -> None:
        """Start processes without waiting for them (see `wait_until_ready`)."""
        for name in names:
            begin = self._forked if release is TODAY else partial(self._started, release)
            self._processes[name] = begin(*_PROCESSES[name], log=self.home / f"{name}.log")

    def _forked(self, module: str, *arguments: str, log: Path) -> WarmProcess:
        return warm.start(f"{module}.__main__", *arguments, env=self._environment, cwd=ROOT, stdout=log)

    def _started(self, release: Release, *command: str, log: Path) -> subprocess.Popen[bytes]:
        environment = {**self._environment, "PYTHONPATH": str(release.tree)}
        with log.open("ab") as output:
            return subprocess.Popen(
                (sys.executable, "-m", *command), cwd=release.tree, env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def stop(self, *names: str) -> None:
        """Stop all processes, or the named ones, as a roll-out does."""
        stopped = [self._processes.pop(name) for name in names or tuple(self._processes)]
        for process in stopped:
            process.send_signal(signal.SIGTERM)
        for process in stopped:
            try:
                process.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise

    def close(self) -> None:
        self.http.close()
        self.stop()

    def replace(self, release: Release, *names: str) -> None:
        """Replace processes by those of another release, in the same folder."""
        self.stop(*names)
        self.start(release, *names)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        wait_until(self._answers, timeout=START_TIMEOUT, what=f"{self.name} that answers")

    def log_of(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text()

    def _answers(self) -> bool:
        for name, process in self._processes.items():
            assert process.poll() is None, self.log_of(name)[-4000:]
        environment, ok = self._environment, httpx2.codes.OK
        if "gateway" in self._processes and self.http.get(f"{self.url}/health/live").status_code != ok:
            return False
        door = f"http://127.0.0.1:{environment['SCRAPYD_PORT']}/daemonstatus.json"
        key = ("discoverybot", environment["SCRAPYD_PASSWORD"])
        return "scrapyd" not in self._processes or self.http.get(door, auth=key).status_code == ok


@contextmanager
def parts(
    folder: Path, variables: Mapping[str, str], **started: tuple[Release, tuple[str, ...]]
) -> Iterator[list[Part]]:
    """Parts by name, each ready with its processes. All are stopped at the end."""
    made = [Part(folder / name.replace("_", "-"), variables) for name in started]
    try:
        for one, (release, names) in zip(made, started.values(), strict=True):
            one.start(release, *names)
        for one in made:
            one.wait_until_ready()
        yield made
    finally:
        with ThreadPoolExecutor(len(made)) as threads:
            list(threads.map(Part.close, made))


@contextmanager
def shared_stores(folder: Path) -> Iterator[dict[str, str]]:
    """The settings that all parts get."""
    with valkey_server(folder / "redis") as redis_url, embedded_mongo(folder / "mongo") as mongo_uri:
        base = redis_url.removesuffix("/0")
        yield {
            "MONGO_URI": str(mongo_uri),
            "REDIS_URL": str(redis_url),
            "HTTP_CACHE_REDIS_URL": f"{base}/1",
            "BROKER_URL": f"{base}/2",
            "SCRAPYD_PASSWORD": "a-password-of-all",
            "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
            "CRAWL_STOP_GRACE": "3",
        }
