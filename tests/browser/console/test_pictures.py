"""The sample of which the documentation's pictures are made says nothing that the platform would not."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from browser.console.platform import Console
from browser.console.sample import Sample

from gateway.jobs.job import JobStatus


async def test_what_the_sample_says_fits_together(locked: Console) -> None:
    sample = Sample(locked)
    jobs = [locked.jobs.get(found["_id"]) for found in locked.database["jobs"].find({}, {"_id": 1})]
    users = {status: {job.user_id for job in jobs if job.status is status} for status in JobStatus}
    # they wait for crawls of their user to end
    assert users[JobStatus.PENDING] == users[JobStatus.RUNNING] == {"bert"}
    headers = {"Authorization": f"Bearer {sample.key}"}
    history = locked.http.get(f"/schedules/{sample.ids['schedule_id']}/history", headers=headers).json()
    due = [datetime.fromisoformat(entry["due"]).astimezone(ZoneInfo("Europe/Paris")) for entry in history["entries"]]
    assert {f"{moment:%H:%M}" for moment in due} == {"09:00"}
    full = locked.jobs.get(sample.ids["job_id"])
    assert full.progress is not None
    log = b"".join(chunk.data for chunk in locked.logs.read(full.id, 1, 0))
    assert full.progress.errors_count == log.count(b" ERROR: ") == 5
    assert full.progress.items_count == locked.items.count(full.id)
