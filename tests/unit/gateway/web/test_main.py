from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "wrong",
    [{"GATEWAY_HOST": "0.0.0.0"}, {"GATEWAY_PORT": "http", "MONGO_URI": "localhost"}],
    ids=["open", "malformed"],
)
def test_what_cannot_be_served_is_said_in_one_line_that_names_the_setting(wrong: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway.web"],
        env={**os.environ, **wrong},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"gateway: {next(iter(wrong))}")
