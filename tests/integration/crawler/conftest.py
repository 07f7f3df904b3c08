"""A crawl as the launcher starts it: a folder with a spec in, files out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from resource import RLIMIT_FSIZE, prlimit
from subprocess import DEVNULL, Popen
from typing import Any, NamedTuple

import pytest
import warm
from bare_python import BARE
from machine import missing
from sites.server import Site
from warm import WarmProcess

from crawler.node.projects import PROJECTS_PYTHON
from crawler.orders import NODE_RULES, NodeRules
from gateway.settings import NodeSettings

ROOT = Path(__file__).parents[3]
JOB_ID = "0123456789abcdef0123456789abcdef"
DEADLINE = 60
#: Projects whose crawls are forked: ours, as on a node, and two that a node would start. What is tested with those is
#: no matter of how a process begins, and to import Scrapy takes half of the time of each.
FORKED = frozenset({ROOT, Path(__file__).parent / "walk", Path(__file__).parent / "shop"})


class Crawl(NamedTuple):
    """What an attempt left behind."""

    exit_code: int
    folder: Path

    @property
    def items(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "items.jsonl").read_bytes().splitlines()]

    @property
    def pages(self) -> list[dict[str, Any]]:
        return [item for item in self.items if item["type"] == "page"]

    @property
    def broken(self) -> list[dict[str, Any]]:
        return [item for item in self.items if item["type"] == "broken_link"]

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.folder / "report.json").read_bytes())
        return report

    @property
    def progress(self) -> dict[str, Any]:
        progress: dict[str, Any] = self.report["progress"]
        return progress

    @property
    def log(self) -> str:
        return (self.folder / "crawl.log").read_text(errors="replace")


class ProjectPython(NamedTuple):
    """A Python that has Scrapy alone, and of ours what runs there."""

    command: list[str]
    #: Holds our packages, and nothing else.
    path: Path


#: Made by the set-up of `make test`.
OLDEST = ROOT / ".tools" / "scrapy-oldest" / "bin" / "python"


@pytest.fixture(scope="session")
def our_part(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a node puts on the path of a project's own Python."""
    folder = tmp_path_factory.mktemp("ours")
    for package in ("crawler", "gateway"):
        (folder / package).symlink_to(ROOT / package)
    return folder


@pytest.fixture(scope="session")
def oldest(our_part: Path) -> ProjectPython:
    """The oldest Scrapy that projects may pin."""
    if not OLDEST.exists():
        missing("`make test` makes the Python with the oldest Scrapy")
    return ProjectPython([str(OLDEST)], our_part)


@pytest.fixture(scope="session")
def newest(our_part: Path) -> ProjectPython:
    """Today's, and nothing that it does not need."""
    return ProjectPython([sys.executable, BARE], our_part)


class Attempt:
    """A running attempt."""

    def __init__(
        self,
        folder: Path,
        spec: Mapping[str, Any],
        environ: Mapping[str, str],
        cwd: Path,
        *,
        file_bytes: int | None,
        python: ProjectPython | None,
        variables: Mapping[str, str] | None,
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "spec.json").write_text(json.dumps(spec))
        env = {
            "PATH": os.environ["PATH"],
            "DISCOVERYBOT_ATTEMPT_DIR": str(folder),
            "DISCOVERYBOT_HOME": str(folder.parent / "home"),
            "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
            # byte code that is cut off at the limit would break every process after this one
            **({"PYTHONDONTWRITEBYTECODE": "1"} if file_bytes else {}),
            **environ,
            **({"DISCOVERYBOT_ENV_FD": "0"} if variables else {}),
        }
        self._stdin = Path(os.devnull)
        if variables:
            self._stdin = folder.with_name("variables.json")
            self._stdin.write_text(json.dumps(dict(variables)))
        if python:
            self.process = self._start_alone(python, spec["spider"], env, cwd)
            return
        self.process = self._start(spec["spider"], env, cwd, forked=cwd in FORKED and not file_bytes)
        if file_bytes:
            # before it writes anything: importing Scrapy alone takes it half a second
            prlimit(self.process.pid, RLIMIT_FSIZE, (file_bytes, file_bytes))

    def _start(self, spider: str, env: Mapping[str, str], cwd: Path, *, forked: bool) -> Popen[bytes] | WarmProcess:
        log, module = self.folder / "crawl.log", "crawler.node.runner"
        if forked:
            log.touch()
            return warm.start(module, "crawl", spider, env=env, cwd=cwd, stdout=log, stdin=self._stdin)
        with log.open("ab") as output:
            return Popen(
                [sys.executable, "-m", module, "crawl", spider],
                stdout=output, stderr=output, stdin=DEVNULL, env=env, cwd=cwd, start_new_session=True,
            )  # fmt: skip

    def _start_alone(
        self, python: ProjectPython, spider: str, env: Mapping[str, str], cwd: Path
    ) -> Popen[bytes] | WarmProcess:
        """In a project's own Python, as a node does: that knows no settings but those that are handed down."""
        settings = {name.lower(): value for name, value in env.items() if name.startswith("CRAWL_")}
        rules = NodeRules.of(NodeSettings.model_validate(settings)).to_json()
        alone = {NODE_RULES: rules, PROJECTS_PYTHON: "1", "PYTHONPATH": str(python.path), **env}
        with (self.folder / "crawl.log").open("ab") as output:
            return Popen(
                [*python.command, "-m", "crawler.node.runner", "crawl", spider],
                stdout=output, stderr=output, stdin=DEVNULL, env=alone, cwd=cwd, start_new_session=True,
            )  # fmt: skip

    def wait(self) -> Crawl:
        return Crawl(self.process.wait(DEADLINE), self.folder)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE)


Start = Callable[..., Attempt]
Run = Callable[..., Crawl]


#: Of each spec.
_WHATEVER = {"job_id": JOB_ID, "project": "DiscoveryBot", "not_after": "2040-01-01T00:00:00Z"}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start a spider: `start("seo", url, …, depth=1, environ={…}, cwd=…)`; more keywords go into the spec.

    `variables` are those of its project, `file_bytes` is the size at which writing to any file fails, `after` the
    folder of the attempt before.
    """
    attempts: list[Attempt] = []

    def start_attempt(
        spider: str,
        *urls: str,
        environ: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        file_bytes: int | None = None,
        after: Path | None = None,
        python: ProjectPython | None = None,
        variables: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Attempt:
        number = int(after.name.rpartition("-")[2]) + 1 if after else 1
        full = {**_WHATEVER, "attempt": number, "spider": spider, "start_urls": list(urls), **spec}
        outbox = after.parent if after else tmp_path_factory.mktemp("node")
        folder = outbox / f"{JOB_ID}-{full['attempt']}"
        attempt = Attempt(folder, full, environ or {}, cwd, file_bytes=file_bytes, python=python, variables=variables)
        attempts.append(attempt)
        return attempt

    yield start_attempt
    for attempt in attempts:
        attempt.end()


@pytest.fixture(scope="module")
def run(start: Start) -> Run:
    """Run a spider to its end."""
    return lambda *args, **kwargs: start(*args, **kwargs).wait()


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as running:
        yield running
