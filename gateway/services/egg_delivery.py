"""Brings a node the egg that it lacks, or has in another content; and takes away what was deleted."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog

from gateway.domain.clock import Clock, utc_now
from gateway.domain.eggs import Content, KeptEgg
from gateway.domain.errors import NodeError, NodeRefusedError
from gateway.domain.room import Egg
from gateway.services.announcer import Announcer
from gateway.services.scrapyd import ScrapydClient
from gateway.storage.client import within
from gateway.storage.egg_copies import EggCopies, EggCopy
from gateway.storage.egg_needs import EggNeeds
from gateway.storage.eggs import EggDamagedError, EggStore
from gateway.storage.nodes import Node, NodeStore

log = structlog.get_logger()

#: Seconds that reading an egg may take; with the call that brings it, fewer than the lease on the copy has.
READ_SECONDS = 20.0
#: What a node has taken it tells within a few seconds; asked for again before then it would be sent twice.
QUIET = timedelta(seconds=30)
#: Before the next try, doubled with each: of a node that did not answer, and of one that looked at it and said no.
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=2)
FIRST_REFUSAL, LONGEST_REFUSAL = timedelta(minutes=1), timedelta(hours=1)
#: Waiting jobs that are told in one go why they do.
TOLD = 200


class EggDelivery:
    def __init__(
        self,
        *,
        eggs: EggStore,
        copies: EggCopies,
        needs: EggNeeds,
        nodes: NodeStore,
        scrapyd: ScrapydClient,
        announcer: Announcer,
        clock: Clock = utc_now,
    ) -> None:
        self._eggs = eggs
        self._copies = copies
        self._needs = needs
        self._nodes = nodes
        self._scrapyd = scrapyd
        self._announcer = announcer
        self._clock = clock

    def bring(self, node_id: str, egg: Egg) -> None:
        """Have the node run what is kept of the version. Nothing happens while another does the same, or too soon
        after the node refused it.
        """
        node, kept = self._nodes.get(node_id), self._eggs.get(egg)
        if node is None or kept is None:
            return
        sha256 = kept.content.sha256 if kept.content else None
        copy = self._copies.begin(node.id, egg, sha256)
        if copy is None:
            return
        try:
            if kept.content is None:
                self._remove(node, copy)
            else:
                self._send(node, copy, kept.content)
        except NodeError as error:
            self._not_taken(copy, sha256, error)
        except EggDamagedError as error:
            self._damaged(kept, copy, error)

    def _send(self, node: Node, copy: EggCopy, content: Content) -> None:
        with TemporaryDirectory(prefix="discoverybot-egg-") as folder:
            file = Path(folder, "brought.egg")
            with file.open("wb") as opened, within(READ_SECONDS):
                for piece in self._eggs.read(content):
                    opened.write(piece)
            spiders = self._scrapyd.add_version(node.url, copy.project, copy.version, file)
        self._copies.brought(copy, content.sha256, self._clock() + QUIET)
        log.info("egg_brought", node=node.id, project=copy.project, version=copy.version, spiders=spiders)

    def _remove(self, node: Node, copy: EggCopy) -> None:
        try:
            self._scrapyd.delete_version(node.url, copy.project, copy.version)
        except NodeRefusedError as error:
            if error.is_nodes_fault:
                raise
            # it is not there any more
            log.info("egg_not_removed", node=node.id, project=copy.project, version=copy.version, why=error.message)
        self._copies.brought(copy, None, self._clock() + QUIET)
        log.info("egg_removed", node=node.id, project=copy.project, version=copy.version)

    def _not_taken(self, copy: EggCopy, sha256: str | None, error: NodeError) -> None:
        refused = not error.is_nodes_fault
        failures = copy.failures if copy.sha256 == sha256 else 0
        first, longest = (FIRST_REFUSAL, LONGEST_REFUSAL) if refused else (FIRST_PAUSE, LONGEST_PAUSE)
        pause = min(longest, first * 2.0 ** min(failures, 16))
        self._copies.failed(copy, sha256, error.message, self._clock() + pause)
        facts = {"node": copy.node, "project": copy.project, "version": copy.version}
        log.warning("egg_not_taken", **facts, refused=refused, error=error.message, again_in=pause.total_seconds())
        if sha256 is not None:
            self._tell(copy.egg, f"node {copy.node} did not take the egg: {error.message}")

    def _damaged(self, kept: KeptEgg, copy: EggCopy, error: EggDamagedError) -> None:
        sha256 = kept.content.sha256 if kept.content else None
        self._copies.failed(copy, sha256, str(error), self._clock() + FIRST_PAUSE)
        if self._eggs.get(kept.egg) != kept:
            return  # it was replaced or deleted while it was read
        log.error("egg_damaged", project=copy.project, version=copy.version, error=str(error))
        self._eggs.lose(kept)
        self._tell(kept.egg, f"the egg that was kept is damaged: deploy {copy.project} {copy.version} again")

    def _tell(self, egg: Egg, message: str) -> None:
        for job in self._needs.tell(egg, message, TOLD):
            self._announcer.status(job)
