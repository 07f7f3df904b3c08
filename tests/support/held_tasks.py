"""A worker of ours with tasks that run until a test ends them: `celery -A held_tasks worker`, in this folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gateway.settings import Settings
from gateway.worker.app import create_celery

HOME = Path(os.environ["HELD_TASKS_HOME"])

app = create_celery(Settings.load())
if "socket_timeout" in app.conf.broker_transport_options:
    # otherwise a broker that does not answer is only given up after ten seconds, which is too long for a test
    app.conf.broker_transport_options |= {"socket_timeout": 1, "health_check_interval": 1}


@app.task(name="hold")
def hold(name: str, end: str) -> None:
    """Run until there is a file named `end`."""
    _note(name)
    while not (HOME / end).exists():
        time.sleep(0.02)
    _note(f"{name}-ended")


@app.task(name="note")
def note(name: str) -> None:
    _note(name)


def _note(text: str) -> None:
    with (HOME / "notes").open("a", encoding="utf-8") as notes:
        notes.write(f"{text}\n")
