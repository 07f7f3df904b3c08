"""Scrapyd killed where the platform's own load never leads it: at a plain job and a cancellation."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

SIDES = ("before", "after")


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
        with suppress(httpx2.TransportError):
            yield
        assert node.process.wait(60) == -signal.SIGKILL
        node.start()

    return killed_at


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
