from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, ensureDeferred

from crawler.node.attempt_files import NodeUnfitError
from crawler.node.building import BuildAnswer
from crawler.node.projects import RUNTIME
from crawler.node.venvs import Venvs
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
