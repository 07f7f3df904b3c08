"""Scrapyd killed where the platform's own load never leads it: at an egg, a plain job and a cancellation."""

from __future__ import annotations

import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest

SIDES = ("before", "after")
#: Replaces an egg, and is killed when half of the new one is written.
KILLED_UPLOAD = """
import io, os, signal, sys
from crawler.node.egg import EggStorage

class Upload(io.BytesIO):
    def read(self, size=-1):
        if self.tell():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(100_000)

EggStorage({"eggs_dir": sys.argv[1]}).put(Upload(bytes(200_000)), "warehouse", "1")
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plan")


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, node_class: Callable[..., Any], stand_in_project: Path, plan: Path
) -> Iterator[Any]:
    """With one slot, and a plan of where it is to be killed."""
    home = tmp_path_factory.mktemp("home")
    node = node_class(home, stand_in_project, NODE_SLOTS="1", DISCOVERYBOT_CRASH_PLAN=str(plan))
    try:
        yield node.start()
    finally:
        node.clean_up()


@pytest.fixture
def killed_at(node: Any, plan: Path) -> Callable[[str], Any]:
    @contextmanager
    def killed_at(point: str) -> Iterator[None]:
        """The request made inside gets no answer; afterwards the node has been started again."""
        (plan / point).touch()
        with suppress(httpx.TransportError):
            yield
        assert node.process.wait(10) == -signal.SIGKILL
        node.start()

    return killed_at


def egg(content: bytes) -> bytes:
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr("content", content)
    return archive.getvalue()


def deploy(node: Any, version: str, content: bytes) -> dict[str, Any]:
    data, files = {"project": "warehouse", "version": version}, {"egg": ("warehouse.egg", content)}
    answer: dict[str, Any] = node.client.post("/addversion.json", data=data, files=files).json()
    return answer


def eggs(node: Any) -> dict[str, bytes]:
    """By version, as the node lists them."""
    listed = node.client.get("/listversions.json", params={"project": "warehouse"}).json()["versions"]
    return {version: (node.home / f"node/eggs/warehouse/{version}.egg").read_bytes() for version in listed}


def test_a_deployment_is_made_wholly_or_not_at_all_and_can_be_repeated(
    node: Any, killed_at: Callable[[str], Any]
) -> None:
    first, second, third = (egg(bytes(100_000) + name) for name in (b"1", b"2", b"3"))
    with killed_at("node.add_version.before"):
        deploy(node, "1", first)
    assert "warehouse" not in node.client.get("/listprojects.json").json()["projects"]
    assert deploy(node, "1", first)["status"] == "ok"
    assert eggs(node) == {"1": first}
    with killed_at("node.add_version.after"):
        deploy(node, "2", second)
    assert eggs(node) == {"1": first, "2": second}
    folder = node.run("quick", project="warehouse", version="2")
    assert node.exit_of(folder)["exit_code"] == 0
    assert node.runs(folder) == 1
    assert deploy(node, "2", third)["status"] == "ok"
    assert eggs(node) == {"1": first, "2": third}


def test_half_an_upload_is_no_egg_and_spoils_none(tmp_path: Path) -> None:
    old = tmp_path / "warehouse/1.egg"
    old.parent.mkdir()
    old.write_bytes(b"the old one")
    upload = subprocess.run([sys.executable, "-c", KILLED_UPLOAD, str(tmp_path)], check=False)
    assert upload.returncode == -signal.SIGKILL
    assert old.read_bytes() == b"the old one"
    assert [*tmp_path.glob("*/*")] == [old]


def test_a_plain_job_is_queued_or_not_and_then_runs_once(node: Any, killed_at: Callable[[str], Any]) -> None:
    for side in SIDES:
        form = {"project": "default", "spider": "quick", "jobid": f"killed-{side}"}
        with killed_at(f"node.queue_job.{side}"):
            node.client.post("/schedule.json", data=form)
        node.wait_until_idle()
        log = node.home / f"node/logs/default/quick/killed-{side}.log"
        assert log.exists() == (side == "after")
        if side == "before":
            assert node.client.post("/schedule.json", data=form).json()["status"] == "ok"
        node.wait_for(log.exists)
        node.wait_until_idle()
        assert log.read_text().count("quick begins") == 1


def test_a_cancellation_that_was_not_answered_is_repeated_and_holds(
    node: Any, killed_at: Callable[[str], Any]
) -> None:
    for side, then in (("before", "running"), ("after", None)):
        busy, waiting = node.run_until_ready("polite"), node.spec("polite")
        folder = node.outbox / node.post(waiting)["jobid"]
        with killed_at(f"node.withdraw.{side}"):
            node.cancel(folder)
        assert node.cancel(busy) == "running"
        if side == "before":  # nothing has been done about it yet: the slot is free, so it runs
            node.wait_for((folder / "ready").exists)
        assert node.cancel(folder) == then
        assert node.exit_of(folder)["stopped_by"] == "cancel"
        assert node.post(waiting)["status"] == "ok"
        node.wait_until_idle()
        assert node.runs(folder) == (side == "before")
