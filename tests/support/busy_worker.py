"""A worker whose every thread is at work while its broker goes away."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Self

import warm
from stack import ROOT, wait_until

from gateway.jobs.messages import create_producer

#: Tasks at a time.
THREADS = 3


class BusyWorker:
    """What it does and says is kept in `home`. `door`: where it finds its broker, if not where its senders do."""

    def __init__(self, broker_url: str, queue: str, home: Path, *, door: str = "") -> None:
        self._broker_url = broker_url
        self._door = door or broker_url
        self._queue = queue
        self._home = home
        self._log = home / "worker.log"
        self._rounds = 0

    @contextmanager
    def running(self) -> Iterator[Self]:
        environment = {
            **os.environ,
            "BROKER_URL": self._door,
            "QUEUE_NAME": self._queue,
            "WORKER_CONCURRENCY": str(THREADS),
            "MONGO_URI": "mongodb://127.0.0.1:9/none?serverSelectionTimeoutMS=100",  # its tasks need none
            "HELD_TASKS_HOME": str(self._home),
        }
        command = ("--quiet", "-A", "held_tasks", "worker")
        worker = warm.start(
            "celery.__main__", *command, env=environment, cwd=ROOT / "tests/support", stdout=self._log
        )
        try:
            yield self
        finally:
            worker.kill()
            worker.wait(60)

    def finish_during(self, absence: AbstractContextManager[None], *, unnoticed: bool = False) -> None:
        """Has a task on each thread, and all of them end while there is nobody to tell. `unnoticed`: a broker that
        need not answer to be told.
        """
        end = self._occupy()
        said = self._complaints()
        with absence:
            end.touch()
            self._wait_for(*(f"hold-{self._rounds}-{number}-ended" for number in range(THREADS)))
            wait_until(lambda: unnoticed or self._complaints() > said, what=f"a word about the broker in {self._log}")

    def check_works(self) -> None:
        """On every thread, at once. The notes are for a dead connection nobody knows of, which eats some."""
        self._send("note", *((f"note-{self._rounds}-{number}",) for number in range(2 * THREADS)))
        self._occupy().touch()

    def _occupy(self) -> Path:
        """Makes every thread busy until there is the file that is returned."""
        self._rounds += 1
        end = self._home / f"end-{self._rounds}"
        names = [f"hold-{self._rounds}-{number}" for number in range(THREADS)]
        self._send("hold", *((name, end.name) for name in names))
        self._wait_for(*names)
        return end

    def _send(self, task: str, *calls: tuple[str, ...]) -> None:
        with create_producer(self._broker_url, self._queue) as producer:
            for arguments in calls:
                producer.send_task(task, arguments)

    def _wait_for(self, *notes: str) -> None:
        wait_until(lambda: set(notes) <= self._notes(), timeout=90, what=f"{notes} (see {self._log})")

    def _notes(self) -> set[str]:
        notes = self._home / "notes"
        return set(notes.read_text().split()) if notes.exists() else set()

    def _complaints(self) -> int:
        return len(re.findall("acknowledgement_failed|Couldn't ack|Connection to broker lost", self._log.read_text()))
