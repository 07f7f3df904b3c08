"""Why a job waits: the `waiting_reason` in its document, which its status shows.

A worker that finds no place for jobs determines the reason here and stores it. A job that waits for its retry
(`backoff`), or for another run of its site or schedule, gets its reason when it begins to wait.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.jobs.job import Requirements, WaitingReason
from gateway.nodes.store import Node

_SITE = "site:"


def why_waits(user_id: str, of_nodes: WaitingReason | None, full: Collection[str]) -> WaitingReason | None:
    """Why a job of this user waits; `None` if it can start. `of_nodes` is the reason why no node can take it; `None`
    if a node can. `full` are the users who may not have more running crawls.
    """
    is_next = of_nodes in {None, WaitingReason.CAPACITY}
    return WaitingReason.USER_QUOTA if is_next and user_id in full else of_nodes


def why_no_node(nodes: Sequence[Node], requirements: Requirements) -> WaitingReason:
    """Why none of these nodes, which get jobs now or soon, can start a job with these requirements."""
    project, version, render = requirements.project, requirements.version, requirements.render
    if not nodes:
        return WaitingReason.NO_NODE
    able = [node for node in nodes if node.has_code(project, version)]
    if not able:
        return WaitingReason.NO_SUCH_PROJECT
    free = [node for node in able if node.has_slot(render=render)]
    # a free node whose disk has space is only resting
    return WaitingReason.DISK_FULL if free and all(node.disk_full for node in free) else WaitingReason.CAPACITY


def why_blocked(exclusive: str) -> WaitingReason:
    """Why a job waits that is blocked by another job with the same `exclusive` resource."""
    return WaitingReason.SITE_BUSY if exclusive.startswith(_SITE) else WaitingReason.PREVIOUS_RUN
