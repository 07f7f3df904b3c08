"""How the jobs of the last hour went, by site: a window, for what is kept of jobs shrinks and counters must not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime

from prometheus_client.metrics_core import Metric

from gateway.domain.job import JobStatus
from gateway.storage.ended_jobs import EndedJob
from gateway.web.metrics.families import labelled, many

#: Sites that are told apart, those with the most ends; the rest is one.
MAX_SITES = 100
_THE_REST = "(other)"
_QUANTILES = (0.5, 0.95, 1.0)
#: What an ended job can have become.
_ENDS = (JobStatus.FINISHED, JobStatus.PARTIAL, JobStatus.ERROR, JobStatus.CANCELLED)
_SUMS: tuple[tuple[str, str, Callable[[EndedJob], int]], ...] = (
    ("recent_items", "Items of the jobs that ended within the last hour.", lambda end: end.items),
    ("recent_pages", "Pages that they fetched.", lambda end: end.pages),
    ("recent_page_errors", "Errors that they met.", lambda end: end.errors),
    ("recent_retries", "Attempts that they took after their first.", lambda end: end.retries),
)


def recent_families(ends: Collection[EndedJob]) -> Iterator[Metric]:
    """A single crawl, which is no site's, has an empty `site_name`."""
    sites = _by_site(ends)
    text = "Jobs that ended within the last hour, by site and how they ended."
    counts = {site: Counter(end.status for end in theirs) for site, theirs in sites.items()}
    ended = {(site, status): counts[site][status] for site in sites for status in _ENDS}
    yield many("recent_jobs", text, ("site_name", "status"), ended)
    for name, about, value in _SUMS:
        yield labelled(name, about, "site_name", {site: sum(map(value, theirs)) for site, theirs in sites.items()})
    yield from _durations(sites)
    about = "Seconds from when a job of the last hour was due until a node was given it."
    yield _quantiles("recent_dispatch_seconds", about, {(): _seconds(ends, lambda end: (end.due, end.dispatched_at))})
    about = "Seconds from when a job of the last hour was due until it ended."
    yield _quantiles("recent_processing_seconds", about, {(): _seconds(ends, lambda end: (end.due, end.finished_at))})


def _durations(sites: dict[str, list[EndedJob]]) -> Iterator[Metric]:
    about = "Seconds from the first start of a job of the last hour to its end, by site."
    ran: dict[tuple[str, ...], list[float]] = {
        (site,): _seconds(theirs, lambda end: (end.started_at, end.finished_at)) for site, theirs in sites.items()
    }
    yield _quantiles("recent_run_seconds", about, ran, ("site_name",))


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
    """In order. Clocks of nodes may be a little off ours: never below 0."""
    spans = (span(end) for end in ends)
    return sorted(max(0.0, (end - begin).total_seconds()) for begin, end in spans if begin and end)


def _quantiles(
    name: str, text: str, ordered: dict[tuple[str, ...], list[float]], labels: tuple[str, ...] = ()
) -> Metric:
    """Nothing where there is nothing to tell of."""
    values = {(*key, f"{q:g}"): _quantile(known, q) for key, known in ordered.items() if known for q in _QUANTILES}
    return many(name, text, (*labels, "quantile"), values)


def _quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
