"""Decides on attempts that have ended as soon as messages name them. The sweep finds those of lost messages."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from gateway.clock import VERDICT_SECONDS
from gateway.jobs.completion import Completion
from gateway.jobs.job import Job
from gateway.jobs.messages import about
from gateway.jobs.store import JobStore
from gateway.nodes.health import SIGN_SECONDS
from gateway.repeated_work import Isolation, Loop
from gateway.signals.delivering import Webhooks
from gateway.stores.mongo import within

#: How many ended attempts are decided on before their consequences are carried out.
CONCLUDED = 50


@define(eq=False, repr=False, slots=False)
class EndedAttempts:
    """Decides on attempts that have ended, many at once. Messages name their jobs."""

    _jobs: JobStore
    _completion: Completion
    _webhooks: Webhooks
    #: Looks only at jobs that messages name; the sweep finds all others.
    loop: Loop = field(init=False)
    _apart: Isolation = field(init=False, factory=lambda: Isolation("ended_attempts"))

    def __attrs_post_init__(self) -> None:
        self.loop = Loop(self.look, SIGN_SECONDS)

    def look(self, named: Sequence[str]) -> bool:
        names = list(dict.fromkeys(named))
        for first in range(0, len(names), CONCLUDED):
            self._conclude(names[first : first + CONCLUDED])
            # there may be webhooks and endpoints to call
            self._webhooks.look()
        return False

    def _conclude(self, names: Sequence[str]) -> None:
        ended: list[Job] = []
        seen: set[str] = set()

        def decide(job: Job) -> None:
            seen.add(job.id)
            with about(job):
                now = job if job.is_final else self._completion.decide(job)
            if now is not None:
                ended.append(now)

        with within(VERDICT_SECONDS):
            jobs = self._jobs.many(names)
            self._apart.each(((job.id, job) for job in jobs), decide)
        # look again at jobs for which there was no time, because MongoDB is slow
        self.loop.wake(*(job.id for job in jobs if job.id not in {*seen, *self._apart.late}))
        # settle with a deadline of its own: slow decisions could use up a common one, and no job would ever be
        # settled
        with within(VERDICT_SECONDS):
            self._settle(ended)

    def _settle(self, ended: Sequence[Job]) -> None:
        try:
            self._completion.settle_soon(*ended)
        except Exception:  # noqa: BLE001 - settle each by itself, so that one that fails does not stop the others
            self._apart.each(((job.id, job) for job in ended), self._completion.settle_soon)
