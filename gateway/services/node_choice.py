"""Which node may be offered a job, and why there is none. Judged from what the nodes said last."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from gateway.domain.job import DEFAULT_PROJECT, Job, WaitingReason
from gateway.domain.lane import Need
from gateway.domain.node_state import NodeState
from gateway.domain.room import Room
from gateway.storage.nodes import Node

#: A node in one of these gets work soon, or as soon as its disk is freed; in any other not before somebody acts, or
#: for minutes.
_HOPEFUL = frozenset({NodeState.UP, NodeState.RESTING, NodeState.DISK_FULL})


class NodeChoice:
    """Of the nodes as they were read at `now`."""

    def __init__(self, nodes: Iterable[Node], now: datetime, dead_after: timedelta) -> None:
        states = [(node, node.state(now, dead_after)) for node in nodes]
        self._hopeful = [node for node, state in states if state in _HOPEFUL]
        up = [node for node, state in states if state is NodeState.UP]
        able = [node for node in up if node.free_slots and not node.is_tried]
        # one that has failed before comes last: were it the emptiest, it would get all there is
        self._able = sorted(able, key=lambda node: (node.failures > 0, -node.free_slots, node.id))

    @property
    def able(self) -> list[Node]:
        """Those with room, most room first."""
        return self._able

    def room(self) -> Room | None:
        """What could be started now; `None` if nothing."""
        if not self._able:
            return None
        browsers = [node for node in self._able if node.free_render_slots]
        rendered = frozenset(egg for node in browsers for egg in node.eggs) if browsers else None
        return Room(frozenset(egg for node in self._able for egg in node.eggs), rendered)

    def nodes_for(self, job: Job) -> list[Node]:
        """Those that may be offered the job, the best first; last of all the one where it has just failed."""
        return sorted(
            self._suitable(job.in_lane.need), key=lambda node: job.current is not None and job.current.node == node.id
        )

    def _suitable(self, need: Need) -> list[Node]:
        return [node for node in self._able if _has_code(node, need) and _has_slot(node, need)]

    def reason(self, need: Need) -> WaitingReason | None:
        """Why a job that needs this cannot be started now; `None` if it can."""
        if self._suitable(need):
            return None
        steps: tuple[tuple[Callable[[Node, Need], bool], WaitingReason], ...] = (
            (_has_code, WaitingReason.NO_SUCH_PROJECT),
            (_has_slot, WaitingReason.CAPACITY),
            (_has_disk, WaitingReason.DISK_FULL),
        )
        left, reason = self._hopeful, WaitingReason.NO_NODE
        for is_suitable, reason_without in steps:
            if not left:
                return reason
            left, reason = [node for node in left if is_suitable(node, need)], reason_without
        # the node that is left only rests
        return WaitingReason.CAPACITY if left else reason


def _has_code(node: Node, need: Need) -> bool:
    return need.project == DEFAULT_PROJECT or any(
        egg.project == need.project and need.version in (None, egg.version) for egg in node.eggs
    )


def _has_slot(node: Node, need: Need) -> bool:
    return bool(node.free_render_slots if need.render else node.free_slots)


def _has_disk(node: Node, _: Need) -> bool:
    return not node.disk_full
