from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from twisted.internet.error import ProcessTerminated

from crawler.node import spider_process
from crawler.node.accounts import Account
from crawler.node.attempt_limits import AttemptLimits
from crawler.node.spider_process import AttemptProcess
from crawler.node.started_mark import StartedMark
from gateway.clock import utc_now
from gateway.contract.outbox import EXIT, AttemptId
from gateway.contract.records import ExitReport

KILLED = ProcessTerminated(signal=signal.SIGKILL)


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the container, in which two processes were killed before."""
    path = tmp_path / "memory.events"
    path.write_text("low 0\nmax 31\noom 2\noom_kill 2\n")
    monkeypatch.setattr(spider_process, "_CGROUP_EVENTS", path)
    return path


@pytest.fixture
def process(events: Path, tmp_path: Path) -> AttemptProcess:
    assert events.exists()
    (folder := tmp_path / "attempt").mkdir()
    mark = StartedMark.make(folder, utc_now())
    assert mark is not None
    process = AttemptProcess(
        project="default", spider="seo", attempt=AttemptId("a" * 32, 1), args=(), grace=1.0, folder=folder,
        mark=mark, limits=AttemptLimits(60.0), account=Account(),
    )  # fmt: skip
    process.transport = SimpleNamespace(usage=None)
    return process


def reported(process: AttemptProcess, tmp_path: Path, how: ProcessTerminated) -> ExitReport:
    process._report_end(how)
    return ExitReport.model_validate_json((tmp_path / "attempt" / EXIT).read_bytes())


def test_one_that_the_kernel_kills_for_want_of_memory_is_lost_with_its_node(
    process: AttemptProcess, events: Path, tmp_path: Path
) -> None:
    events.write_text(events.read_text().replace("oom_kill 2", "oom_kill 3"))
    report = reported(process, tmp_path, KILLED)
    assert (report.lost, report.signal, report.exit_code) == (True, signal.SIGKILL, None)


@pytest.mark.parametrize("how", ["by a person", "for a limit of its own", "by itself", "outside of a container"])
def test_no_other_end_is_that_of_its_node(process: AttemptProcess, events: Path, tmp_path: Path, how: str) -> None:
    if how == "outside of a container":
        events.unlink()
    elif how != "by a person":
        # somebody else was killed meanwhile
        events.write_text("oom_kill 3\n")
    process.stopped_by = "memory" if how == "for a limit of its own" else None
    assert not reported(process, tmp_path, ProcessTerminated(1) if how == "by itself" else KILLED).lost
