from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from stack import ROOT

pytestmark = [pytest.mark.stack]


def test_the_demo_finds_what_is_wrong_with_its_site_and_is_gone_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # of the user's own platform
    monkeypatch.setenv("MONGO_PASSWORD", "of-another")
    monkeypatch.setenv("DISCOVERYBOT_SECRETS", "/nowhere")
    done = subprocess.run(
        [str(Path(sys.executable).with_name("discoverybot")), "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in ("server error", "broken link", "no title", "no description", "redirect"):
        assert kind in done.stdout
    assert not list(tmp_path.iterdir())
