"""Which node may be offered a job, and why there is none. Judged from what the nodes said last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta

from gateway.domain.job import DEFAULT_PROJECT, WaitingReason
from gateway.domain.lane import Need
from gateway.domain.node_state import NodeState
from gateway.domain.room import Room
from gateway.storage.nodes import Node

#: A node in one of these gets work soon, or as soon as its disk is freed; in any other not before somebody acts, or
#: for minutes.
_HOPEFUL = frozenset({NodeState.UP, NodeState.RESTING, NodeState.DISK_FULL})


class NodeChoice:
    """Of the nodes as they were read at `now`, and of what was put on them since."""

    def __init__(
        self, nodes: Iterable[Node], now: datetime, dead_after: timedelta, busy: Collection[str] = ()
    ) -> None:
        """Nodes that are `busy` are spoken to right now; they are offered more in a moment."""
        states = [(node, node.state(now, dead_after)) for node in nodes]
        self._hopeful = [node for node, state in states if state in _HOPEFUL]
        up = [node for node, state in states if state is NodeState.UP and node.id not in busy]
        self._able = [node for node in up if node.free_slots and not node.is_tried]
        self._room: Room | None = None

    @property
    def able(self) -> list[Node]:
        """Those with room, the best first. One that has failed before comes last: were it the emptiest, it would get
        all there is.
        """
        return sorted(self._able, key=lambda node: (node.failures > 0, -node.free_slots, node.id))

    def room(self) -> Room | None:
        """What could be started now; `None` if nothing."""
        if self._able and self._room is None:
            self._room = self._look()
        return self._room if self._able else None

    def _look(self) -> Room:
        browsers = [node for node in self._able if node.free_render_slots]
        rendered = frozenset(egg for node in browsers for egg in node.eggs) if browsers else None
        return Room(frozenset(egg for node in self._able for egg in node.eggs), rendered)

    def place(self, need: Need, avoid: Collection[str] = ()) -> Node | None:
        """The node that is offered the job, which counts there from now on; one to `avoid` comes last of all."""
        suitable = self._suitable(need)
        if not suitable:
            return None
        best = min(suitable, key=lambda node: (node.id in avoid, node.failures > 0, -node.free_slots, node.id))
        best.used_slots += 1
        best.used_render_slots += need.render
        if need.render or not best.free_slots or best.failures:
            self._room = None
        # one that has failed before has one attempt at a time
        if not best.free_slots or best.failures:
            self._able.remove(best)
        return best

    def suits(self, need: Need) -> bool:
        """Whether some node could be offered a job that needs this."""
        return bool(self._suitable(need))

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
