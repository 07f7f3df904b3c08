"""Deletes a version of a project everywhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import (
    InvalidRequestError,
    NodeError,
    VersionNotFoundError,
)
from gateway.domain.job import DEFAULT_PROJECT
from gateway.domain.room import Egg
from gateway.services.announcer import Announcer
from gateway.services.scrapyd import ScrapydClient
from gateway.services.spider_catalog import project_name
from gateway.storage.client import truth_store_errors
from gateway.storage.egg_needs import EggNeeds
from gateway.storage.eggs import EggStore
from gateway.storage.nodes import Node, NodeStore

log = structlog.get_logger()

#: Nodes that are asked at once.
_AT_ONCE = 4
#: Waiting jobs that are told.
_TOLD = 200


class NodeRemoval(NamedTuple):
    node: str
    #: It is not there any more.
    removed: bool
    #: Why it still is; it is removed once the node can be asked.
    message: str | None = None


class Undeployment:
    def __init__(
        self,
        *,
        nodes: NodeStore,
        eggs: EggStore,
        needs: EggNeeds,
        scrapyd: ScrapydClient,
        announcer: Announcer,
        dead_after: timedelta,
        clock: Clock = utc_now,
    ) -> None:
        self._nodes = nodes
        self._eggs = eggs
        self._needs = needs
        self._scrapyd = scrapyd
        self._announcer = announcer
        self._dead_after = dead_after
        self._clock = clock

    def delete(self, project: str, version: str) -> list[NodeRemoval]:
        """What became of it on each node that had it. It is deleted first in MongoDB, so that nobody brings it back.

        Raises `InvalidRequestError` for our own project, `VersionNotFoundError`, `UnavailableError`.
        """
        if project_name(project) == DEFAULT_PROJECT:
            raise InvalidRequestError("project", f"{project!r} is our own, which has no egg")
        egg = Egg(project, version)
        with truth_store_errors():
            kept = self._eggs.get(egg)
            nodes = self._nodes.all()
            # one that was deleted may still be on a node that is dead
            if kept.content is None if kept else not any(egg in node.eggs for node in nodes):
                raise VersionNotFoundError(project, version)
            self._eggs.delete(egg)
            if kept and kept.content:
                self._eggs.discard(kept.content)
            for job in self._needs.tell(egg, f"version {version!r} of {project!r} was deleted", _TOLD):
                self._announcer.status(job)
            now = self._clock()
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="delete-from") as threads:
            answers = threads.map(lambda node: self._remove(node, egg, now), nodes)
            removals = [answer for answer in answers if answer is not None]
        log.info("version_deleted", project=project, version=version, nodes=[each._asdict() for each in removals])
        return removals

    def _remove(self, node: Node, egg: Egg, now: datetime) -> NodeRemoval | None:
        """`None` of a node that had none."""
        # what was deployed a moment ago it has not told yet
        told = egg in node.eggs
        if not node.is_alive(now, self._dead_after):
            return (
                NodeRemoval(node.id, removed=False, message="it is dead; removed once it is back") if told else None
            )
        try:
            self._scrapyd.delete_version(node.url, egg.project, egg.version)
        except NodeError as error:
            if not error.is_nodes_fault:
                return NodeRemoval(node.id, removed=True) if told else None
            return NodeRemoval(node.id, removed=False, message=error.message) if told else None
        return NodeRemoval(node.id, removed=True)
