from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import Clock

from crawler.node.attempt_files import NodeUnfitError
from crawler.node.projects import RUNTIME
from crawler.node.spawn import LimitedTurns
from crawler.node.venv_builder import BuildAnswer
from crawler.node.venv_queue import Venvs
from gateway.settings import ScrapydSettings


def test_nothing_is_installed_once_scrapyd_is_shut_down(tmp_path: Path) -> None:
    venvs = Venvs(ScrapydSettings(), tmp_path / "venvs")
    venvs.start()
    venvs.stop()
    errors: list[BaseException] = []
    build: Deferred[BuildAnswer] = ensureDeferred(venvs.build(b"colour\n", "shop", "1", fresh=True, within=None))
    build.addErrback(lambda failure: errors.append(failure.value))
    (error,) = errors
    with pytest.raises(NodeUnfitError, match="interrupted"):
        raise error
    assert [path.name for path in (tmp_path / "venvs").iterdir()] == [RUNTIME]
    assert venvs.told("shop", "1", None)["state"] == "failed"


def test_builds_of_one_project_that_hang_leave_a_turn_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[HangingBuild] = []

    def start(*_: object, **__: object) -> HangingBuild:
        begun.append(HangingBuild())
        return begun[-1]

    monkeypatch.setattr("crawler.node.venv_queue.Command.start", start)
    venvs = Venvs(ScrapydSettings(), tmp_path / "venvs")
    venvs.start()
    answers = [
        ensureDeferred(venvs.build(b"colour==%d\n" % number, project, "1", fresh=True, within=None))
        for number, project in enumerate(["shop", "shop", "shop", "other"])
    ]
    assert venvs.told("other", "1", None)["log"] == "hanging"
    assert (len(begun), venvs.told("shop", "1", None)["log"]) == (2, "")
    begun[0].result.callback(BuildAnswer(problem="no").model_dump_json().encode())
    assert (len(begun), [answer.called for answer in answers]) == (3, [True, False, False, False])
    for build in begun[1:]:
        build.result.callback(BuildAnswer(problem="no").model_dump_json().encode())


class HangingBuild:
    said = "hanging"

    def __init__(self) -> None:
        self.result: Deferred[bytes] = Deferred()


def test_what_hangs_is_waited_for_only_so_long() -> None:
    clock, begun = Clock(), list[Deferred[bytes]]()
    turns = LimitedTurns[bytes](2, 60.0, clock)

    def hang() -> Deferred[bytes]:
        begun.append(Deferred())
        return begun[-1]

    for _ in range(4):
        ensureDeferred(turns.take(hang))
    assert len(begun) == 2
    begun[0].callback(b"")
    assert len(begun) == 3
    clock.advance(61.0)
    assert len(begun) == 4
    # their places are free already
    for one in begun[1:]:
        one.callback(b"")
    for _ in range(3):
        ensureDeferred(turns.take(hang))
    assert len(begun) == 6
    for one in begun[4:]:
        one.callback(b"")
