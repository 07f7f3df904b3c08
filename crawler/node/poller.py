"""Looking at the queues when there is a reason to, instead of every few seconds."""

from __future__ import annotations

from typing import Any

from scrapyd.poller import QueuePoller
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from crawler.node.loop import reactor

log = Logger()


class PushPoller(QueuePoller):
    """Polls when kicked: something was queued, or a slot got free. Scrapyd's timer stays as a safety net, and no
    exception ends it (Scrapyd's issues #279 and #543): one project's broken queue is logged and passed over.
    """

    _kicked = False
    _stopped = False

    def kick(self) -> None:
        """Poll soon; many kicks make one poll."""
        if not self._kicked:
            self._kicked = True
            reactor.callLater(0, self.poll)

    def next(self) -> Deferred[dict[str, Any]]:
        slot: Deferred[dict[str, Any]] = super().next()
        self.kick()
        return slot

    def stop(self) -> None:
        """Take nothing from the queues any more: what is taken now would be lost."""
        self._stopped = True

    def poll(self) -> None:
        self._kicked = False
        for project, queue in list(self.queues.items()):
            try:
                self._drain(project, queue)
            except Exception:  # noqa: BLE001 - whatever it is, the next poll must come
                log.failure("cannot poll the queue of {project}", project=project)

    def _drain(self, project: str, queue: Any) -> None:
        """Hand messages to free slots. `dq.put` runs the launcher before it returns, so there is no moment at
        which a message is neither in the queue nor launched but that of a kill; then it is posted again.
        """
        while self.dq.waiting and not self._stopped and (message := queue.pop()) is not None:
            self.dq.put(
                {**{k: v for k, v in message.items() if k != "name"}, "_project": project, "_spider": message["name"]}
            )
