"""What travels on a job's pub/sub channel: one message is a batch of events of one kind.

JSON objects, told apart by `kind`:

- `{"kind": "log", "attempt": 1, "entries": [[start, end, "<the SSE data, as JSON text>"], …]}`: in order
- `{"kind": "progress", "attempt": 1, "data": {…Progress…}}`
- `{"kind": "status", "job_id": …, "user_id": …, "data": {"status": …, "attempt": …, …}}`: also published on
  `redis_keys.ALL_EVENTS`
"""

from __future__ import annotations

from typing import Any

import orjson

from gateway.domain.clock import to_iso
from gateway.domain.job import Job, JobStatus
from gateway.domain.log_line import LogEntry
from gateway.domain.node_files import Progress


def log_event(attempt: int, entries: list[LogEntry]) -> bytes:
    rows = [[entry.start, entry.end, entry.to_json().decode()] for entry in entries]
    return orjson.dumps({"kind": "log", "attempt": attempt, "entries": rows})


def progress_event(attempt: int, progress: Progress) -> bytes:
    data = progress.model_dump(mode="json", exclude={"at"})
    return orjson.dumps({"kind": "progress", "attempt": attempt, "data": data})


def status_data(job: Job) -> dict[str, Any]:
    data: dict[str, Any] = {"status": job.status.value, "attempt": job.attempt}
    if job.status is JobStatus.SCHEDULED:
        data["next_run"] = to_iso(job.not_before)
    if job.waiting_reason:
        data["waiting_reason"] = job.waiting_reason.value
    if job.message:
        data["message"] = job.message
    return data


def status_event(job: Job) -> bytes:
    return orjson.dumps({"kind": "status", "job_id": job.id, "user_id": job.user_id, "data": status_data(job)})


def decode(message: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = orjson.loads(message)
    return decoded
