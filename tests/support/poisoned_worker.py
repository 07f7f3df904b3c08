"""A worker of ours with two more tasks: `celery -A poisoned_worker worker`, in this folder."""

from __future__ import annotations

import os
from pathlib import Path

from gateway.settings import Settings
from gateway.worker.app import create_celery

app = create_celery(Settings.load())


@app.task(name="poison")
def poison() -> None:
    """Kill the process that runs it, as a crash of the interpreter would."""
    _note("poison")
    os._exit(1)


@app.task(name="note")
def note(text: str) -> None:
    _note(text)


def _note(text: str) -> None:
    with Path(os.environ["NOTES"]).open("a", encoding="utf-8") as notes:
        notes.write(f"{text}\n")
