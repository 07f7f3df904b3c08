"""Sees which node is to be brought which egg, and has a worker do it: off the way of those who dispatch."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from itertools import islice

import structlog

from gateway.domain.clock import Clock, utc_now
from gateway.services.node_choice import NodeChoice
from gateway.services.waker import BRING_EGG, Waker
from gateway.storage.egg_copies import LEASE, EggCopies
from gateway.storage.egg_needs import EggNeed, EggNeeds
from gateway.storage.eggs import EggStore
from gateway.storage.nodes import Node, NodeStore

log = structlog.get_logger()

#: Seconds between two looks.
LOOK_SECONDS = 2.0
#: and more where there are no eggs at all: whoever deploys one brings it to the nodes.
NONE_SECONDS = 6.0
#: Seconds between two looks at what nobody needs any more.
CLEAN_SECONDS = 600.0
#: Chunks that are nobody's after so long were left by somebody who died.
ORPHANED_AFTER = timedelta(hours=1)
#: Versions that are brought, or mended, by one look.
BATCH = 20
#: A node that has not taken it by then is not waited for: the next one is tried.
PATIENCE = timedelta(seconds=20)


class EggWatch:
    def __init__(
        self,
        *,
        eggs: EggStore,
        copies: EggCopies,
        needs: EggNeeds,
        nodes: NodeStore,
        waker: Waker,
        dead_after: timedelta,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._eggs = eggs
        self._copies = copies
        self._needs = needs
        self._nodes = nodes
        self._waker = waker
        self._dead_after = dead_after
        self._clock = clock
        self._monotonic = monotonic
        self._looked_at = self._cleaned_at = float("-inf")

    def look(self) -> None:
        """Every other second; what is asked for twice is done once."""
        if self._monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = self._monotonic()
        if not self._eggs.any():
            self._looked_at += NONE_SECONDS
            return
        now, nodes = self._clock(), self._nodes.all(attempts=False)
        alive = {node.id for node in nodes if node.is_alive(now, self._dead_after)}
        for copy in self._copies.outdated(BATCH):
            if copy.node in alive:
                self._waker.wake(BRING_EGG, copy.node, copy.project, copy.version)
        self._bring(NodeChoice(nodes, now, self._dead_after))
        if self._monotonic() - self._cleaned_at >= CLEAN_SECONDS:
            self._cleaned_at = self._monotonic()
            self._clean()

    def _bring(self, choice: NodeChoice) -> None:
        room = choice.room()
        if room is None:
            return
        lacking = self._needs.lacking(room)
        # what cannot be brought is passed over, or it would keep all others waiting
        brought = ((node, need) for need in lacking if (node := self._receiver(need, choice.able)) is not None)
        for node, need in islice(brought, BATCH):
            self._waker.wake(BRING_EGG, node.id, *need.egg)

    def _receiver(self, need: EggNeed, able: list[Node]) -> Node | None:
        """The node with most room that may be brought the egg; none while another is being brought it."""
        kept = self._eggs.get(need.egg)
        if kept is None or kept.content is None:
            return None
        now, copies = self._clock(), self._copies.of_egg(need.egg)
        begun = (copy.leased_until - LEASE for copy in copies.values() if copy.leased_until)
        if any(now - at < PATIENCE for at in begun):
            return None
        fitting = [node for node in able if node.free_render_slots or not need.render]
        return next(
            (
                node
                for node in fitting
                if node.id not in copies or not copies[node.id].waits(now, kept.content.sha256)
            ),
            None,
        )

    def _clean(self) -> None:
        self._copies.forget(self._nodes.names())
        if removed := self._eggs.sweep(self._clock() - ORPHANED_AFTER):
            log.info("orphaned_egg_chunks_removed", chunks=removed)
