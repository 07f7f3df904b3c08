"""Jobs for tests, as short as a test needs them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gateway.domain.clock import utc_now
from gateway.domain.job import CrawlSpec, Job, new_job_id


def make_job(**fields: Any) -> Job:
    now: datetime = fields.pop("created_at", None) or utc_now()
    identity = fields.pop("fingerprint", None) or new_job_id()
    spec = CrawlSpec(spider=fields.pop("spider", "seo"), start_urls=("http://site.example/",))
    given = {"user_id": "ada", "spec": spec, "fingerprint": identity, "live_key": identity, "not_before": now}
    return Job.model_validate({"id": new_job_id(), "created_at": now, "updated_at": now, **given, **fields})
