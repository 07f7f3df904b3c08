"""What a worker does by itself, with a thread for each: no message has to arrive for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import structlog
from celery import bootsteps

from gateway.clock import VERDICT_SECONDS
from gateway.container import Container
from gateway.datasets.fold_threads import Folding
from gateway.datasets.run_exports import Exporting
from gateway.datasets.watching import RunWatch
from gateway.dispatch.dispatcher import LOOK_SECONDS, Dispatch
from gateway.dispatch.egg_delivery import EggDelivery, EggWatch
from gateway.error_groups.ended_runs import EndedRuns
from gateway.jobs import messages
from gateway.nodes.scrapyd import ScrapydClient
from gateway.repeated_work import Patience
from gateway.retention.retention import Retention
from gateway.signals.delivering import Webhooks
from gateway.stores.mongo import within
from gateway.worker.ended_attempts import EndedAttempts

log = structlog.get_logger()

#: Seconds between two looks for runs to fold.
FOLD_SECONDS = 1.0
#: Seconds between two looks for exports to write.
EXPORT_SECONDS = 5.0
#: Seconds between two looks at runs of datasets that have not ended yet.
WATCH_SECONDS = 5.0
#: Seconds between two looks for ended jobs that are in no daily sum, and how many of them are added at a time.
ADOPT_SECONDS, ADOPTED = 60.0, 500
#: Seconds between two deletions of data whose retention has ended.
RETENTION_SECONDS = 60.0


class OwnWork(bootsteps.StartStopStep):
    """The work that a worker finds by itself, from its start to its end, without messages: the broker may be slow,
    may refuse messages, or cannot be reached.
    """

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        parts: Container = parent.app.parts
        self._parts = parts
        self._ended = threading.Event()
        self._patience = Patience()
        here = {messages.ENQUEUE_CRAWL: self._look_for_work, messages.CALL_WEBHOOKS: self._call_webhooks}
        parts.waker = messages.WithinWorker(parts.waker, here)

    def start(self, _parent: Any) -> None:
        for name, work in (
            ("dispatch", self._dispatch),
            ("ended attempts", self._conclude),
            ("eggs", self._bring_eggs),
            ("retention", self._remove),
            ("datasets", self._fold),
            ("running datasets", self._watch),
            ("exports", self._export),
            ("daily sums", self._adopt),
        ):
            threading.Thread(target=self._keep_on, args=(work,), name=name, daemon=True).start()

    def stop(self, _parent: Any) -> None:
        self._ended.set()
        if Dispatch in self._parts:
            # posts under way are still recorded; another worker repeats deliveries of eggs
            self._parts[Dispatch].close()
            self._parts[ScrapydClient].close()
        if EndedAttempts in self._parts:
            self._parts[EndedAttempts].loop.close()
        if Folding in self._parts:
            self._parts[Folding].close()
        if Exporting in self._parts:
            self._parts[Exporting].close()

    terminate = stop

    def _keep_on(self, work: Callable[[], object]) -> None:
        while not self._ended.is_set():
            try:
                work()
            except Exception as error:  # noqa: BLE001 - a store that cannot be reached may come back
                log.warning("own_work_failed", work=work.__name__, error=str(error), kind=type(error).__name__)
            self._ended.wait(LOOK_SECONDS)

    def _dispatch(self) -> None:
        """Run the dispatcher's loop until the worker ends."""
        self._parts[Dispatch].loop.run()

    def _look_for_work(self, *job_ids: str) -> None:
        self._parts[Dispatch].loop.wake(*job_ids)

    def _call_webhooks(self, *_: str) -> None:
        self._parts[Webhooks].look()

    def _conclude(self) -> None:
        self._parts[EndedAttempts].loop.run()

    def _bring_eggs(self) -> None:
        with self._patience.round():
            delivery = self._parts[EggDelivery]
            for wanted in self._parts[EggWatch].wanted(delivery.may_have):
                delivery.bring_soon(wanted)

    def _fold(self) -> None:
        """Begin to fold due runs into their datasets."""
        with within(VERDICT_SECONDS):
            self._parts[Folding].look()
        self._ended.wait(FOLD_SECONDS)

    def _export(self) -> None:
        """Begin to write due exports."""
        with within(VERDICT_SECONDS):
            self._parts[Exporting].look()
        self._ended.wait(EXPORT_SECONDS)

    def _watch(self) -> None:
        """Look at runs of datasets that have not ended yet."""
        with within(VERDICT_SECONDS):
            self._parts[RunWatch].look()
        self._ended.wait(WATCH_SECONDS)

    def _adopt(self) -> None:
        """Add jobs that ended in an older release to the daily sums and groups of errors. Jobs that end now are added
        when they are announced.
        """
        if not self._parts[EndedRuns].adopt(ADOPTED):
            self._ended.wait(ADOPT_SECONDS)

    def _remove(self) -> None:
        """Remove data whose retention is over. Rounds of several workers may overlap."""
        # no pause while rounds do not finish; otherwise data could be added faster than it is removed
        while self._parts[Retention].run() and not self._ended.is_set():
            log.info("retention_continues")
        self._ended.wait(RETENTION_SECONDS)
