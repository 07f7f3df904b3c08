"""`GET /metrics`, for Prometheus: the facts of the platform, and what this process measures of itself."""

from __future__ import annotations

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from fastapi import Request, Response
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.access.keys import Scope
from gateway.contract.reasons import Reason
from gateway.errors import UnavailableError
from gateway.jobs.job import JobStatus, WaitingReason
from gateway.jobs.queries import EndedJob
from gateway.nodes.node import NodeState
from gateway.nodes.store import Node
from gateway.schedules.schedule import ScheduleState
from gateway.status.facts import FactReader, PlatformFacts
from gateway.web.authorisation import needs
from gateway.web.dependencies import Parts, Router

_PREFIX = "discoverybot_"
Name = TypeVar("Name", bound=str)
Names = TypeVar("Names", bound=tuple[str, ...])


def gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, text, value=value)


def labelled(name: str, text: str, label: str, values: Mapping[Name, float]) -> GaugeMetricFamily:
    """A gauge with one label."""
    return many(name, text, (label,), {(key,): value for key, value in values.items()})


def many(name: str, text: str, labels: Sequence[str], values: Mapping[Names, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(_PREFIX + name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, float(value))
    return family


# --- the jobs of the last hour, by site. These are gauges over a window, because a counter must never decrease, and
# the number of stored jobs does

#: Sites with a label value of their own, those with the most ends; all other sites share one.
MAX_SITES = 100
_THE_REST = "(other)"
_QUANTILES = (0.5, 0.95, 1.0)
#: Jobs whose end another version has stored, without a reason or with one that is not known here.
_UNKNOWN = "unknown"
#: The statuses of ended jobs.
_ENDS = (JobStatus.FINISHED, JobStatus.PARTIAL, JobStatus.ERROR, JobStatus.CANCELLED)
_SUMS: tuple[tuple[str, str, Callable[[EndedJob], int]], ...] = (
    ("recent_items", "Items of the jobs that ended within the last hour.", lambda end: end.items),
    ("recent_pages", "Pages that the jobs which ended within the last hour have fetched.", lambda end: end.pages),
    ("recent_page_errors", "Errors of the jobs that ended within the last hour.", lambda end: end.errors),
    ("recent_retries", "Retries of the jobs that ended within the last hour.", lambda end: end.retries),
)


def recent_families(ends: Collection[EndedJob]) -> Iterator[Metric]:
    """The metrics of the jobs that ended within the last hour. Crawls that belong to no site have an empty
    `site_name`.
    """
    sites = _by_site(ends)
    text = "Jobs that ended within the last hour, by site and how they ended."
    counts = {site: Tally(end.status for end in theirs) for site, theirs in sites.items()}
    ended = {(site, status): counts[site][status] for site in sites for status in _ENDS}
    yield many("recent_jobs", text, ("site_name", "status"), ended)
    reasons = Tally(end.reason or _UNKNOWN for end in ends)
    text = "Jobs that ended within the last hour, by the reason for which they ended so."
    yield labelled("recent_reasons", text, "reason", {reason: reasons[reason] for reason in (*Reason, _UNKNOWN)})
    for name, about, value in _SUMS:
        yield labelled(name, about, "site_name", {site: sum(map(value, theirs)) for site, theirs in sites.items()})
    about = "Seconds from first start to end of the jobs that ended within the last hour, by site."
    ran = {(site,): _seconds(theirs, lambda end: (end.started_at, end.finished_at)) for site, theirs in sites.items()}
    yield _quantiles("recent_run_seconds", about, ran, ("site_name",))
    about = "Seconds from when a job was due until it was assigned, of jobs that ended within the last hour."
    yield _quantiles("recent_dispatch_seconds", about, {(): _seconds(ends, lambda end: (end.due, end.dispatched_at))})
    about = "Seconds from when a job was due until it ended, of jobs that ended within the last hour."
    yield _quantiles("recent_processing_seconds", about, {(): _seconds(ends, lambda end: (end.due, end.finished_at))})


def _by_site(ends: Iterable[EndedJob]) -> dict[str, list[EndedJob]]:
    found: defaultdict[str, list[EndedJob]] = defaultdict(list)
    for end in ends:
        found[end.site or ""].append(end)
    best = sorted(found, key=lambda site: (site != "", -len(found[site]), site))
    for site in best[MAX_SITES:]:
        found[_THE_REST].extend(found.pop(site))
    return dict(found)


def _seconds(
    ends: Iterable[EndedJob], span: Callable[[EndedJob], tuple[datetime | None, datetime | None]]
) -> list[float]:
    """Sorted, and never below 0: the clocks of nodes may be a little off ours."""
    spans = (span(end) for end in ends)
    return sorted(max(0.0, (end - begin).total_seconds()) for begin, end in spans if begin and end)


def _quantiles(name: str, text: str, ordered: Mapping[Names, list[float]], labels: tuple[str, ...] = ()) -> Metric:
    """The quantiles of each key's sorted values. A key without values has no sample."""
    values = {(*key, f"{q:g}"): _quantile(known, q) for key, known in ordered.items() if known for q in _QUANTILES}
    return many(name, text, (*labels, "quantile"), values)


def _quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


# --- the facts of the platform as Prometheus reads them. Every gateway reports the same ones.

#: Pending jobs that no worker has looked at yet.
_UNEXPLAINED = "unexplained"


def platform_families(facts: PlatformFacts | None) -> Iterator[Metric]:
    """The metrics of the platform. Without facts there is only `mongodb_up` with 0: old facts are not repeated."""
    yield gauge("mongodb_up", "Whether MongoDB answered the last call.", float(facts is not None))
    if facts is not None:
        yield from _queue(facts)
        yield from _scheduler(facts)
        yield from _nodes(facts)
        yield from recent_families(facts.ends)


def _queue(facts: PlatformFacts) -> Iterator[Metric]:
    by_status = facts.by_status
    yield labelled("jobs", "Stored jobs, by status.", "status", by_status)
    waiting: dict[str, float] = {reason: facts.by_reason.get(reason, 0) for reason in WaitingReason}
    waiting[_UNEXPLAINED] = max(0, by_status[JobStatus.PENDING] - sum(facts.by_reason.values()))
    yield labelled("jobs_waiting", "Pending jobs, by the reason why they wait.", "reason", waiting)
    text = "Seconds since the pending job that waits longest was due."
    yield gauge("queue_oldest_seconds", text, facts.oldest_waiting)
    yield gauge("dead_letters", "Jobs that failed and have no retries left.", facts.dead_letters)
    text = "Calls of webhooks and endpoints that are due and not made yet, among the first 1,000 to make."
    yield gauge("webhooks_waiting", text, facts.webhooks.waiting)
    text = "Calls that have failed and will be repeated, among the same 1,000."
    yield gauge("webhooks_failing", text, facts.webhooks.failing)
    yield gauge("workers_alive", "Workers with a recent sign of life.", facts.workers)


def _scheduler(facts: PlatformFacts) -> Iterator[Metric]:
    yield gauge("beats_alive", "Beats with a recent sign of life.", facts.beats)
    text = "Seconds by which the occurrence that has been due longest is late; 0 if none is due."
    yield gauge("scheduler_lag_seconds", text, facts.lag)
    states = {state: facts.schedules.get(state, 0) for state in ScheduleState}
    yield labelled("schedules", "Schedules, by state.", "state", states)
    yield gauge("schedules_due", "Schedules that are due now; counted to 10,000.", facts.schedules_due)
    yield gauge("one_off_jobs", "Single crawls that are to run later.", facts.one_off_jobs)


def _nodes(facts: PlatformFacts) -> Iterator[Metric]:
    for name, text, value in _OF_NODES:
        yield labelled(name, text, "node", {node.id: value(node) for node in facts.nodes})
    alive = {node.id: node.id in facts.alive for node in facts.nodes}
    states = {(name, state): state is one for name, one in facts.node_states.items() for state in NodeState}
    yield many("node_state", "1 for the state that the node is in; only one that is up gets work.",
               ("node", "state"), states)  # fmt: skip
    yield labelled("node_up", "Whether the node has a recent sign of life.", "node", alive)


_OF_NODES: tuple[tuple[str, str, Callable[[Node], float]], ...] = (
    ("node_slots", "Slots of the node.", lambda node: node.max_slots),
    ("node_slots_used", "Slots of the node that are in use.", lambda node: node.used_slots),
    ("node_render_slots", "Slots of the node that may drive a browser.", lambda node: node.max_render_slots),
    ("node_render_slots_used", "Slots of the node that drive a browser now.", lambda node: node.used_render_slots),
    ("node_failures", "Failures of the node in a row.", lambda node: node.failures),
    (
        "node_disk_full",
        "Whether the node takes no new work because its disk is nearly full.",
        lambda node: node.disk_full,
    ),
    ("node_free_bytes", "Bytes that are free on the node's disk.", lambda node: node.free_bytes or 0),
)


router = Router(tags=["health"])


_DESCRIBED: dict[str, Any] = {
    "description": "Prometheus's text format",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


class _All(Collector):
    def __init__(self, *families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for families in self._families:
            yield from families


@router.get("/metrics", summary="Figures for Prometheus", response_class=Response, responses={200: _DESCRIBED})
@needs(Scope.METRICS)
async def get_metrics(request: Request, parts: Parts) -> Response:
    """How the queue, the schedules, the nodes and the runs of the last hour fare, the same from every gateway; and
    this process's own requests and streams. Without MongoDB only the latter.
    """
    own: Iterable[Metric] = request.app.state.process_metrics.registry.collect()
    facts = None
    with suppress(UnavailableError):
        facts = await parts.threads.run(parts[FactReader].facts)
    text = generate_latest(_All(own, platform_families(facts)))
    return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)
