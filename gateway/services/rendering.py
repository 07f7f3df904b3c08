"""Crawls that drive a browser, which not every node has."""

from __future__ import annotations

from datetime import timedelta

from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import InvalidRequestError
from gateway.domain.job import CrawlSpec
from gateway.storage.nodes import NodeStore

_PARAMETER = "render"


def renders(spec: CrawlSpec) -> bool | None:
    """True or absent: as the job's document has it."""
    return True if spec.params.get(_PARAMETER) is True else None


class Rendering:
    def __init__(self, nodes: NodeStore, dead_after: timedelta, clock: Clock = utc_now) -> None:
        self._nodes = nodes
        self._dead_after = dead_after
        self._clock = clock

    def check(self, spec: CrawlSpec) -> None:
        """Raises `InvalidRequestError` for a crawl that needs a browser while no living node has one."""
        if not renders(spec):
            return
        now = self._clock()
        if not any(node.max_render_slots and node.is_alive(now, self._dead_after) for node in self._nodes.all()):
            raise InvalidRequestError(
                f"params.{_PARAMETER}",
                "no crawl node has a Chromium: install one or set CHROMIUM_PATH on a node",
            )
