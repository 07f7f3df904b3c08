"""Rules about crawl nodes: their states, how long they rest after failures, which ends of attempts count as their
failures, and the names of their resources.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum

from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.contract.node_list import door
from gateway.contract.outbox import WITHDRAWN
from gateway.contract.records import ExitReport

#: Seconds that a node rests after its first failure; each further failure in a row doubles them.
REST_SECONDS = 2.0
#: Longest rest, in seconds.
MAX_REST_SECONDS = 300.0
#: Longest rest of a node that does not answer a probe. It is short, because another probe puts no crawl at risk.
MAX_SILENT_REST_SECONDS = 30.0
#: A node that rests after this many failures in a row, or more, is in quarantine.
QUARANTINE_AFTER = 3


class NodeState(StrEnum):
    """Only a node that is `up` is offered new work. If several states apply, the last one in this list counts."""

    UP = "up"
    #: Less than `NODE_MIN_FREE_BYTES` is free.
    DISK_FULL = "disk_full"
    #: It rests after a failure.
    RESTING = "resting"
    #: It rests after `QUARANTINE_AFTER` failures in a row, or more.
    QUARANTINED = "quarantined"
    #: An operator has drained it.
    DRAINING = "draining"
    #: `SCRAPYD_URL` names other nodes, and not this one.
    NOT_LISTED = "not_listed"
    #: It shares no protocol with this release: its version is too old, or too new.
    INCOMPATIBLE = "incompatible"
    #: It has given no sign of life for too long.
    DEAD = "dead"


def rest(failures: int, longest: float = MAX_REST_SECONDS) -> timedelta:
    """How long a node rests after its n-th failure in a row. There is no jitter, because only one probe follows."""
    return timedelta(seconds=min(longest, REST_SECONDS * 2 ** (min(failures, 16) - 1)))


def fault_of_node(exit_report: ExitReport, project: str, *, ran: bool) -> str | None:
    """Why the attempt's end counts as a failure of its node; `None` if it does not. `ran`: it has made requests.

    Only ends that a crawl cannot cause by itself count: the attempt was never started, it disappeared, or it died
    before it made a request. The last case counts only for the default project, which starts on every healthy node: a
    deployed egg may crash at once for its own reasons, and must not make nodes rest that others need.
    """
    if exit_report.refused is not None:
        innocent = exit_report.refused in WITHDRAWN.values() or exit_report.fault == "job"
        return None if innocent else f"it did not start an attempt ({exit_report.refused})"
    if exit_report.report is not None or exit_report.stopped_by is not None:
        return None
    if exit_report.lost:
        # a signal here means that the node ran out of memory, which several crawls together can cause
        return None if exit_report.signal else "it lost an attempt"
    if not ran and project == DEFAULT_PROJECT and (exit_report.exit_code or exit_report.signal):
        return "a crawl of our own project died there before it made a request"
    return None


def node_resource(node: str) -> str:
    """The name of the resource of a node's slots."""
    return f"node:{node}"


def browser_resource(node: str) -> str:
    """The name of the resource of a node's render slots."""
    return f"browser:{node}"


def user_resource(user_id: str) -> str:
    """The name of the resource of a user's running crawls."""
    return f"user:{user_id}"


# --- which nodes get work: those that `SCRAPYD_URL` names, or all that register themselves


class NodeList:
    """URLs of the nodes that get work. Different spellings of a URL count as equal. An empty list means
    every node.
    """

    def __init__(self, urls: Iterable[str] = ()) -> None:
        self.urls = tuple(urls)
        self._doors = frozenset(map(door, self.urls))

    def has(self, url: str) -> bool:
        return not self._doors or door(url) in self._doors

    def missing(self, registered: Iterable[str]) -> list[str]:
        """The URLs in the list that no `registered` node has."""
        doors = frozenset(map(door, registered))
        return [url for url in self.urls if door(url) not in doors]


EVERY_NODE = NodeList()
