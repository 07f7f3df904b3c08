"""Every Redis name, built in one place."""

from __future__ import annotations

#: Status changes of every job, for `/events`.
ALL_EVENTS = "events"
#: Prefix of the counts of each caller's requests; the counting library makes the rest.
REQUEST_RATES = "rate:requests"


def dedupe(user_id: str, spider: str, fingerprint: str) -> str:
    """String `P|<job id>|<ms>` (provisional) or `C|<job id>|<ms>` (the document exists)."""
    return f"crawl:{user_id}:{spider}:{fingerprint}"


def log_stream(job_id: str, attempt: int) -> str:
    """Stream of one attempt's live lines; entry ids are `<attempt>-<end offset>`."""
    return f"logs:{job_id}:{attempt}"


def site_rate(site: str) -> str:
    """String: theoretical arrival time (GCRA) of the next request to the site, by all of its crawls."""
    return f"rate:site:{site}"


def job_channel(job_id: str) -> str:
    """Pub/sub channel of one job: log lines, progress, status changes (see `gateway/jobs/messages.py`)."""
    return f"logs:{job_id}"
