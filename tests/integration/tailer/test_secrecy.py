"""A spider that runs as the tailer's user does not learn the passwords of the stores."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from node import ROOT, wait_for

#: Executes a command without `CAP_SYS_PTRACE`, `CAP_SYS_ADMIN` and `CAP_PERFMON` (24 is `PR_CAPBSET_DROP` of
#: Linux's prctl(2)): root is then a user like any other here.
PLAIN_USER = """
import ctypes, os, sys
for capability in (19, 21, 38):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
READ = "import sys; print(open(f'/proc/{sys.argv[1]}/environ').read())"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", PLAIN_USER, *arguments]


def seen(process: subprocess.Popen[bytes]) -> str:
    """What another process of the same user reads as the process's environment; empty if it may not read it."""
    reader = command(sys.executable, "-c", READ, str(process.pid))
    return subprocess.run(reader, capture_output=True, text=True, check=False).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc elsewhere")
def test_the_tailers_environment_is_closed_to_spiders(tmp_path: Path) -> None:
    sleep = shutil.which("sleep")
    assert sleep
    own = {"DISCOVERYBOT_HOME": str(tmp_path), "MONGO_URI": "mongodb://u:pass@127.0.0.1:9/x", "REDIS_PORT": "9"}
    environment = {"PATH": os.environ["PATH"], **own}
    with (tmp_path / "log").open("wb") as log:
        other = subprocess.Popen(command(sleep, "120"), env=environment)
        tailer = subprocess.Popen(
            command(sys.executable, "-m", "gateway.tailer"), cwd=ROOT, env=environment, stdout=log, stderr=log
        )
    try:
        wait_for(lambda: b"tailer_started" in (tmp_path / "log").read_bytes(), 90)
        assert "u:pass" in seen(other)
        assert seen(tailer) == ""
    finally:
        for process in (other, tailer):
            process.terminate()
            process.wait(60)
