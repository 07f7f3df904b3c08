"""A run's record and a page of its results as one JSON document; the results pass through as they were kept."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.domain.job import Job
from gateway.domain.run import RunStatus
from gateway.services.run_record import Run
from gateway.storage.items import ItemStore
from gateway.web.item_export import ItemExport
from gateway.web.item_formats import JsonFormat
from gateway.web.schemas.run import RunRecord


class RunFormat(JsonFormat):
    """`{…record…, "results": […], "next": …}`."""

    def __init__(self, record: bytes, *, before: bytes = b"", behind: bytes = b"") -> None:
        super().__init__()
        self._separator = before + record.removesuffix(b"}") + b',"results":[\n'
        self._behind = behind

    def end(self, following: str | None) -> bytes:
        return super().end(following) + self._behind


def run_page(items: ItemStore, run: Run, limit: int, after: str | None) -> bytes:
    """The answer to whoever asks for a run."""
    return _page(items, run.job, RunFormat(_record(run)), limit, after)


def sync_page(items: ItemStore, run: Run, limit: int) -> bytes:
    """The answer to whoever has waited for it."""
    failed = RunRecord.of(run).status is RunStatus.FAILED
    before = b'{"status":"%s","data":' % (b"failed" if failed else b"success")
    encoder = RunFormat(_record(run, execution_mode="sync"), before=before, behind=b"}")
    return _page(items, run.job, encoder, limit, None)


def _record(run: Run, **more: Any) -> bytes:
    record = RunRecord.of(run).model_dump(mode="json")
    return orjson.dumps({**record, **more, "items_url": f"/jobs/{run.job.id}/items"})


def _page(items: ItemStore, job: Job, encoder: RunFormat, limit: int, after: str | None) -> bytes:
    attempt = job.current.attempt if job.current else 0
    data, _ = ItemExport(items, job.id, attempt, after, encoder).page(limit)
    return data
