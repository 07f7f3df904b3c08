"""Which node may be offered a job, and why there is none. Judged from what the nodes said last."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from gateway.domain.job import DEFAULT_PROJECT, Job, WaitingReason
from gateway.domain.room import Room
from gateway.storage.nodes import Node


class NodeChoice:
    """Of the nodes as they were read at `now`."""

    def __init__(self, nodes: Iterable[Node], now: datetime, dead_after: timedelta) -> None:
        self._alive = [node for node in nodes if node.is_alive(now, dead_after)]
        able = [
            node
            for node in self._alive
            if node.free_slots and not node.disk_full and (node.rest_until is None or node.rest_until <= now)
        ]
        self._able = sorted(able, key=lambda node: (-node.free_slots, node.id))

    def room(self) -> Room | None:
        """What could be started now; `None` if nothing."""
        if not self._able:
            return None
        browsers = [node for node in self._able if node.free_render_slots]
        rendered = frozenset(egg for node in browsers for egg in node.eggs) if browsers else None
        return Room(frozenset(egg for node in self._able for egg in node.eggs), rendered)

    def nodes_for(self, job: Job) -> list[Node]:
        """Those that may be offered the job, most room first."""
        return [node for node in self._able if _has_code(node, job) and _has_slot(node, job)]

    def reason(self, job: Job) -> WaitingReason | None:
        """Why the job cannot be started now; `None` if it can."""
        if self.nodes_for(job):
            return None
        steps: tuple[tuple[Callable[[Node, Job], bool], WaitingReason], ...] = (
            (_has_code, WaitingReason.NO_SUCH_PROJECT),
            (_has_slot, WaitingReason.CAPACITY),
            (_has_disk, WaitingReason.DISK_FULL),
        )
        left, reason = self._alive, WaitingReason.NO_NODE
        for is_suitable, reason_without in steps:
            if not left:
                return reason
            left, reason = [node for node in left if is_suitable(node, job)], reason_without
        # the node that is left only rests
        return WaitingReason.CAPACITY if left else reason


def _has_code(node: Node, job: Job) -> bool:
    project, version = job.spec.project, job.spec.version
    return project == DEFAULT_PROJECT or any(
        egg.project == project and version in (None, egg.version) for egg in node.eggs
    )


def _has_slot(node: Node, job: Job) -> bool:
    return bool(node.free_render_slots if job.render else node.free_slots)


def _has_disk(node: Node, _: Job) -> bool:
    return not node.disk_full
