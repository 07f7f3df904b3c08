"""Crawl nodes: how long one rests after failures, whose fault an attempt's end was, what can be held of a node."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.contract.outbox import ExitReport

#: A node rests for so many seconds after its first failure, and twice as long after each further one in a row,
REST_SECONDS = 2.0
#: up to here.
MAX_REST_SECONDS = 300.0
#: Failures in a row from which on a node is not just tired.
QUARANTINE_AFTER = 3
#: What the launcher says of an attempt that was cancelled before it ran.
_CANCELLED = "cancelled"


class NodeState(StrEnum):
    """Only a node that is `up` is offered new work. The first of these that applies, from the last one up."""

    UP = "up"
    #: Less than `NODE_MIN_FREE_BYTES` is free.
    DISK_FULL = "disk_full"
    #: It has just failed us.
    RESTING = "resting"
    #: It has failed us again and again.
    QUARANTINED = "quarantined"
    #: Somebody has said so.
    DRAINING = "draining"
    #: `SCRAPYD_URL` names others.
    NOT_LISTED = "not_listed"
    #: It has given no sign of life for long.
    DEAD = "dead"


def rest(failures: int) -> timedelta:
    """After the n-th failure in a row. No jitter: nobody but one probe comes back when it is over."""
    return timedelta(seconds=min(MAX_REST_SECONDS, REST_SECONDS * 2 ** (min(failures, 16) - 1)))


def fault_of_node(exit_report: ExitReport, project: str, *, ran: bool) -> str | None:
    """Why the attempt's end speaks against its node, if it does. `ran`: it was seen to make requests.

    Against the node speaks only what no crawl can bring about by itself: what was never started, what disappeared,
    and what died before it had anything to report, if it was our own project, which starts wherever a node is sound.
    A deployed egg may crash at once for reasons of its own, and must not put the nodes of all others to rest.
    """
    if exit_report.refused is not None:
        innocent = exit_report.refused == _CANCELLED or exit_report.fault == "job"
        return None if innocent else f"it did not start an attempt ({exit_report.refused})"
    if exit_report.report is not None or exit_report.stopped_by is not None:
        return None
    if exit_report.lost:
        return "it lost an attempt"
    if not ran and project == DEFAULT_PROJECT and (exit_report.exit_code or exit_report.signal):
        return "a crawl of our own project died there before it made a request"
    return None


def node_resource(node: str) -> str:
    """A node's slots."""
    return f"node:{node}"


def browser_resource(node: str) -> str:
    """Those of its slots that may drive a browser."""
    return f"browser:{node}"


def user_resource(user_id: str) -> str:
    """The crawls that a user has running."""
    return f"user:{user_id}"
