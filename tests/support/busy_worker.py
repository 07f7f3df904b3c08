"""A worker that loses its broker while each of its threads runs a task."""

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
    """Notes and logs are in `home`. `door` is the worker's address of the broker, if it differs from that
    of senders.
    """

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
        """Run a task on each thread, and let all of them end while the broker is away, so that they cannot be
        acknowledged. With `unnoticed`, do not wait until the worker has noticed that.
        """
        end = self._occupy()
        said = self._complaints()
        with absence:
            end.touch()
            self._wait_for(*(f"hold-{self._rounds}-{number}-ended" for number in range(THREADS)))
            wait_until(lambda: unnoticed or self._complaints() > said, what=f"a word about the broker in {self._log}")

    def check_works(self) -> None:
        """Check that all threads work at once. More tasks are sent than needed, because a dead connection
        loses some.
        """
        self._send("note", *((f"note-{self._rounds}-{number}",) for number in range(2 * THREADS)))
        self._occupy().touch()

    def _occupy(self) -> Path:
        """Keep every thread busy until the returned file exists."""
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
