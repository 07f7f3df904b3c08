"""Announces versions that have become the latest of their project, and deployments that nodes refuse."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from attrs import define, field
from pymongo.errors import PyMongoError

from gateway.clock import Clock, utc_now
from gateway.dispatch.egg_delivery import EggRefusal
from gateway.projects.versions import VersionStore
from gateway.signals.alerting import apart
from gateway.signals.delivery_store import DeliveryStore
from gateway.signals.endpoints import EndpointStore, tell
from gateway.signals.events import event_of_live, event_of_refusal

log = structlog.get_logger()

#: Seconds between two rounds.
EVERY_SECONDS = 3.0
#: At most this many projects are announced in one round.
PROJECTS = 100


@define(eq=False, repr=False, slots=False, kw_only=True)
class DeploySignals:
    _versions: VersionStore
    _deliveries: DeliveryStore
    _endpoints: EndpointStore
    _public_url: str = ""
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    _looked_at: float = field(init=False, default=float("-inf"))

    def look(self) -> None:
        """Announce new latest versions. To be called every few seconds. Raises PyMongo's errors."""
        if self._monotonic() - self._looked_at < EVERY_SECONDS:
            return
        self._looked_at = self._monotonic()
        for project in self._versions.untold(PROJECTS):
            with apart("version_not_told", project=project.project):
                tell(event_of_live(project, self._public_url), self._endpoints, self._deliveries)
                self._versions.told(project)

    def refused(self, refusal: EggRefusal) -> None:
        """Announce a refused deployment, only once for each content and reason. Never raises: the user who deploys
        gets the reason as the answer, and a stored version is sent to the node again.
        """
        try:
            event = event_of_refusal(refusal, self._clock(), self._public_url)
            tell(event, self._endpoints, self._deliveries)
        except PyMongoError as error:
            log.warning("refusal_not_told", **refusal.egg._asdict(), error=str(error))
