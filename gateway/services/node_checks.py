"""What is said of the crawl nodes when somebody asks after the platform's health. Raises PyMongo's errors."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from gateway.domain.clock import Clock
from gateway.domain.node_list import NodeList
from gateway.domain.node_state import NodeState
from gateway.services.check import STARTING, Check
from gateway.services.node_health import MISSING_TODO, NodeReport, report_on
from gateway.storage.nodes import Node, NodeStore
from gateway.storage.spiders import SpiderStore

#: By somebody's will.
_KEPT_FROM_WORK = frozenset({NodeState.DRAINING, NodeState.NOT_LISTED})
#: Of living nodes, those that get no new work.
_OTHERS = tuple(state for state in NodeState if state not in {NodeState.UP, NodeState.DEAD})


#: Anybody may ask after the health: addresses, and what is wrong there, are for admins.
_WHY = "GET /nodes says of each why, and what to do"


class NodeChecks:
    def __init__(
        self, nodes: NodeStore, spiders: SpiderStore, node_list: NodeList, dead_after: timedelta, clock: Clock
    ) -> None:
        self._nodes = nodes
        self._spiders = spiders
        self._list = node_list
        self._dead_after = dead_after
        self._clock = clock

    def alive(self) -> Check:
        todo = "start Scrapyd and its tailer (`python -m gateway.tailer`); jobs wait for a node"
        told = self._told()
        alive = [(node, report) for node, report in told if report.state is not NodeState.DEAD]
        if not self._spiders.nodes():
            wait = "wait a moment, or see the tailer's log" if alive else todo
            return Check(STARTING, "none has published its spiders yet", wait)
        if not alive:
            return Check("down", "none is alive" if told else "none was ever seen", todo)
        free = sum(node.free_slots for node, report in alive if report.state is NodeState.UP)
        count = Counter(report.state for _, report in alive)
        others = "".join(f", {count[state]} {state.replace('_', ' ')}" for state in _OTHERS if count[state])
        return Check("ok", f"{len(alive)} alive{others}, {free} free slots")

    def states(self) -> Check:
        """Whether two have one name, one is quarantined, or all that live are kept from work."""
        told = [(node, report.state) for node, report in self._told() if report.state is not NodeState.DEAD]
        now = self._clock()
        failures = {node.id: _failures(node) for node, _ in told if node.failures}
        if twice := [node.id for node, _ in told if node.has_rival(now, self._dead_after)]:
            todo = f"{_WHY}: the second of each is refused, and gets no work until its NODE_NAME is its own"
            return Check("down", f"two machines call themselves {', '.join(twice)}", todo)
        if bad := [failures[node.id] for node, state in told if state is NodeState.QUARANTINED]:
            todo = f"{_WHY}; each is probed when its rest is over, and gets no work until it answers"
            return Check("down", f"quarantined: {', '.join(bad)}", todo)
        if told and all(state in _KEPT_FROM_WORK for _, state in told):
            return Check("down", "none takes new work", _WHY)
        if failures:
            return Check("ok", f"none is quarantined, but has failed: {', '.join(failures.values())}", _WHY)
        return Check("ok", "none is quarantined")

    def disk(self) -> Check:
        full = [node for node in self.living() if node.disk_full]
        if not full:
            return Check("ok", "every node has room")
        names = ", ".join(f"{node.id} ({(node.free_bytes or 0) >> 20} MiB free)" for node in full)
        todo = "free disk there, or lower NODE_MIN_FREE_BYTES or NODE_KEEP_SECONDS; until then it gets no new work"
        return Check("down", f"nearly full on {names}", todo)

    def files(self) -> Check:
        """Whether what crawls write can be read. Where it cannot, their own jobs alone miss it."""
        told = [node for node in self.living() if node.troubles]
        if not told:
            return Check("ok", "every crawl's files can be read")
        names = ", ".join(f"{node.id} ({'; '.join(node.troubles)})" for node in told)
        todo = (
            "cancel those crawls, or look into their spiders: a file of theirs is a FIFO, a link, a folder or endless"
        )
        return Check("down", f"unreadable on {names}", todo)

    def listed(self) -> Check:
        """What `SCRAPYD_URL` names against who has registered."""
        if not self._list.urls:
            return Check("ok", "every node that registers itself gets work")
        told = self._told()
        if missing := self._list.missing(node.url for node, _ in told):
            message = f"of the {len(self._list.urls)} that SCRAPYD_URL names, {len(missing)} never registered"
            return Check("down", message, f"{MISSING_TODO}; GET /nodes names them")
        if others := [node.id for node, report in told if report.state is NodeState.NOT_LISTED]:
            message = f"not named by SCRAPYD_URL, so without work: {', '.join(others)}"
            return Check("ok", message, "add their URLs, as GET /nodes shows them, or stop their tailers")
        return Check("ok", "those that SCRAPYD_URL names are there")

    def living(self) -> list[Node]:
        return [node for node, report in self._told() if report.state is not NodeState.DEAD]

    def _told(self) -> list[tuple[Node, NodeReport]]:
        now = self._clock()
        return [(node, report_on(node, now, self._dead_after)) for node in self._nodes.all()]


def _failures(node: Node) -> str:
    return f"{node.id} ({node.failures} failure{'s' if node.failures > 1 else ''})"
