"""The facts of the platform as Prometheus reads them. Every gateway tells the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import Metric

from gateway.domain.job import JobStatus, WaitingReason
from gateway.domain.node_state import NodeState
from gateway.domain.schedule import ScheduleState
from gateway.services.platform_facts import PlatformFacts
from gateway.storage.nodes import Node
from gateway.web.metrics.families import gauge, labelled, many
from gateway.web.metrics.recent import recent_families

#: Pending jobs that nobody has looked at yet.
_UNEXPLAINED = "unexplained"


def platform_families(facts: PlatformFacts | None) -> Iterator[Metric]:
    """Without facts, that there are none: what was true before MongoDB went away is not told again."""
    yield gauge("mongodb_up", "Whether MongoDB answered when it was asked last.", float(facts is not None))
    if facts is not None:
        yield from _queue(facts)
        yield from _scheduler(facts)
        yield from _nodes(facts)
        yield from recent_families(facts.ends)


def _queue(facts: PlatformFacts) -> Iterator[Metric]:
    by_status = {status: facts.by_status.get(status, 0) for status in JobStatus}
    yield labelled("jobs", "Jobs that are kept, by status.", "status", by_status)
    waiting: dict[str, float] = {reason: facts.by_reason.get(reason, 0) for reason in WaitingReason}
    waiting[_UNEXPLAINED] = max(0, by_status[JobStatus.PENDING] - sum(facts.by_reason.values()))
    yield labelled("jobs_waiting", "Pending jobs, by what they wait for.", "reason", waiting)
    text = "Seconds for which the pending job that waits longest has been due."
    yield gauge("queue_oldest_seconds", text, facts.oldest_waiting)
    yield gauge("dead_letters", "Jobs that are out of retries and wait for a person.", facts.dead_letters)
    text = "Ended jobs whose webhooks are due and wait to be called; of the first 1,000 that have any to call."
    yield gauge("webhooks_waiting", text, facts.webhooks.waiting)
    text = "Of these 1,000, those of which a call has failed and is to be repeated."
    yield gauge("webhooks_failing", text, facts.webhooks.failing)
    yield gauge("workers_alive", "Workers that gave a sign of life lately.", facts.workers)


def _scheduler(facts: PlatformFacts) -> Iterator[Metric]:
    yield gauge("beats_alive", "Beats that gave a sign of life lately.", facts.beats)
    text = "Seconds by which the slot that waits longest is late; 0 where none is."
    yield gauge("scheduler_lag_seconds", text, facts.lag)
    states = {state: facts.schedules.get(state, 0) for state in ScheduleState}
    yield labelled("schedules", "Schedules, by state.", "state", states)
    yield gauge("schedules_due", "Schedules that are due now; counted to 10,000.", facts.schedules_due)
    yield gauge("one_off_jobs", "Single crawls whose time has not come.", facts.one_off_jobs)


def _nodes(facts: PlatformFacts) -> Iterator[Metric]:
    for name, text, value in _OF_NODES:
        yield labelled(name, text, "node", {node.id: value(node) for node in facts.nodes})
    alive = {node.id: node.id in facts.alive for node in facts.nodes}
    states = {(name, state): state is one for name, one in facts.node_states.items() for state in NodeState}
    yield many("node_state", "1 for the state that the node is in; only one that is up gets work.",
               ("node", "state"), states)  # fmt: skip
    yield labelled("node_up", "Whether the node gave a sign of life lately.", "node", alive)


_OF_NODES: tuple[tuple[str, str, Callable[[Node], float]], ...] = (
    ("node_slots", "Crawls that the node runs at once.", lambda node: node.max_slots),
    ("node_slots_used", "Of these, those that run.", lambda node: node.used_slots),
    ("node_render_slots", "Of the node's slots, those that may drive a browser.", lambda node: node.max_render_slots),
    ("node_render_slots_used", "Of these, those that do.", lambda node: node.used_render_slots),
    ("node_failures", "Failures of the node in a row.", lambda node: node.failures),
    ("node_disk_full", "Whether the node takes no new work for want of disk.", lambda node: node.disk_full),
    ("node_free_bytes", "Bytes that are free on the node's disk.", lambda node: node.free_bytes or 0),
)
