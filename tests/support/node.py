"""A real Scrapyd process for a test, with its own home folder and port."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import psutil
import warm
from stores import free_port
from warm import WarmProcess

ROOT = Path(__file__).parents[2]
#: A project with spiders that do not need Scrapy.
STAND_IN = ROOT / "tests/integration/crawler_node/project"
PASSWORD = "not-a-secret"
#: Seconds within which a spider must stop, even on a busy machine.
GRACE = 2


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.04)
    return value


class TurnedClock:
    """A wall clock for processes. A file in `home` says how many seconds it is ahead."""

    def __init__(self, home: Path, seconds: int = 0) -> None:
        home.mkdir(parents=True)
        self.file = home / "seconds"
        self.turn(seconds)

    def turn(self, seconds: int) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self.file)

    def environment(self, *, but: str = "none") -> dict[str, str]:
        """The environment of processes that use this clock: all Python processes, except commands with
        `but` in them.
        """
        spared = f"'WRONG_CLOCK' not in os.environ or any({but!r} in word for word in sys.orig_argv)"
        code = f"import os\nimport sys\nif not ({spared}):\n    import turned_clock\n"
        (self.file.parent / "sitecustomize.py").write_text(code)
        paths = (str(self.file.parent), str(ROOT / "tests/support"), str(STAND_IN), str(ROOT))
        return {"PYTHONPATH": os.pathsep.join(paths), "WRONG_CLOCK": str(self.file)}


class Node:
    """A crawl node. `folder` is Scrapyd's working folder."""

    #: A prefix of the command that starts Scrapyd.
    before: tuple[str, ...] = ()
    #: Whether Scrapyd is forked from a process that has imported it. Others then see the environment of that process,
    #: not Scrapyd's own.
    forked = True

    def __init__(self, home: Path, folder: Path, **environ: str) -> None:
        self.home, self.folder = home, folder
        self.port = free_port()
        self.environ = {
            **{name: os.environ[name] for name in ("PATH", "HOME")},
            "DISCOVERYBOT_HOME": str(home),
            "SCRAPYD_PORT": str(self.port),
            "SCRAPYD_PASSWORD": PASSWORD,
            "NODE_SLOTS": "3",
            "CRAWL_STOP_GRACE": str(GRACE),
            "PYTHONPATH": str(STAND_IN),
            "MONGO_URI": "mongodb://user:hidden-mongo@127.0.0.1/x",
            "BROKER_URL": "amqp://user:hidden-broker@127.0.0.1//",
            "AWS_SECRET_ACCESS_KEY": "hidden-aws",
            **environ,
        }
        self.client = httpx2.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            auth=("discoverybot", PASSWORD),
            timeout=60,
            trust_env=False,
            verify=False,  # plain HTTP: saves loading all certificate authorities
        )
        self.process: subprocess.Popen[bytes] | WarmProcess | None = None

    @property
    def outbox(self) -> Path:
        return self.home / "node" / "outbox"

    def start(self) -> Node:
        self.home.mkdir(parents=True, exist_ok=True)
        if self.forked and not self.before and not self._customized():
            log, env = self.home / "scrapyd.log", self.environ
            self.process = warm.start("scrapyd.__main__", "--pidfile=", env=env, cwd=self.folder, stdout=log)
        else:
            self.process = self._started()
        wait_for(self.answers)
        return self

    def _customized(self) -> bool:
        """Whether there is a module that a process imports before all others."""
        places = filter(None, self.environ["PYTHONPATH"].split(os.pathsep))
        return any(Path(place, "sitecustomize.py").exists() for place in places)

    def _started(self) -> subprocess.Popen[bytes]:
        command = [*self.before, str(Path(sys.executable).with_name("scrapyd")), "--pidfile="]
        with (self.home / "scrapyd.log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, env=self.environ, stdout=log, stderr=log)

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        try:
            return self.client.get("/daemonstatus.json").status_code == 200
        except httpx2.TransportError:
            return False

    def end(self, signal_number: signal.Signals = signal.SIGTERM) -> float:
        """Signal Scrapyd and wait for its end. Returns the seconds that this took."""
        assert self.process is not None
        begin = time.monotonic()
        self.process.send_signal(signal_number)
        self.process.wait(60)
        return time.monotonic() - begin

    def log(self) -> str:
        return (self.home / "scrapyd.log").read_text()

    def clean_up(self) -> None:
        """Leave nothing behind: neither Scrapyd nor what it started."""
        if self.process and self.process.poll() is None:
            self.end(signal.SIGKILL)
        for process in psutil.process_iter(["environ"]):
            if (process.info["environ"] or {}).get("DISCOVERYBOT_HOME") == str(self.home):
                process.kill()
        self.client.close()

    def spec(self, spider: str, **changes: Any) -> dict[str, Any]:
        not_after = datetime.now(UTC) + timedelta(minutes=1)
        spec = {"job_id": uuid.uuid4().hex, "attempt": 1, "project": "DiscoveryBot", "spider": spider}
        return {**spec, "start_urls": ["http://127.0.0.1/"], "not_after": not_after.isoformat(), **changes}

    def post(self, spec: dict[str, Any], /, **fields: str) -> dict[str, Any]:
        data = {
            "project": spec["project"],
            "spider": spec["spider"],
            "jobid": f"{spec['job_id']}-{spec['attempt']}",
            "spec": json.dumps(spec),
            **fields,
        }
        answer: dict[str, Any] = self.client.post("/schedule.json", data=data).json()
        return answer

    def post_and_be_killed(self, spec: dict[str, Any]) -> Path:
        """Post an attempt to a node whose crash plan will fire."""
        with suppress(httpx2.TransportError):  # it may or may not answer before it dies
            self.post(spec)
        assert self.process is not None
        self.process.wait(60)
        return self.outbox / f"{spec['job_id']}-{spec['attempt']}"

    def run(self, spider: str, **changes: Any) -> Path:
        """Post an attempt. Returns its folder in the outbox."""
        spec = self.spec(spider, **changes)
        answer = self.post(spec)
        assert answer["status"] == "ok", answer
        return self.outbox / answer["jobid"]

    def run_until_ready(self, spider: str, **changes: Any) -> Path:
        folder = self.run(spider, **changes)
        wait_for((folder / "ready").exists)
        return folder

    def cancel(self, folder: Path, project: str = "discoverybot", **fields: str) -> str | None:
        answer = self.client.post("/cancel.json", data={"project": project, "job": folder.name, **fields}).json()
        assert answer["status"] == "ok", answer
        return answer["prevstate"]

    def exit_of(self, folder: Path) -> dict[str, Any]:
        wait_for((folder / "exit.json").exists)
        report: dict[str, Any] = json.loads((folder / "exit.json").read_bytes())
        return report

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.client.get("/daemonstatus.json").json()
        return status

    def wait_until_idle(self) -> None:
        wait_for(lambda: self.status()["running"] == 0 and self.status()["pending"] == 0)

    def wait_for(self, condition: Callable[[], Any], seconds: float = 60) -> Any:
        return wait_for(condition, seconds)

    def runs(self, folder: Path) -> int:
        """How often the attempt's spider was started, according to the spider itself."""
        path = self.home / "runs"
        return path.read_text().splitlines().count(folder.name) if path.exists() else 0
