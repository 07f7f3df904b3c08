"""How a job is made, and what its status may become."""

from __future__ import annotations

import itertools

import pytest

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.jobs.job import FINAL_STATUSES, TRANSITIONS, CrawlOrder, Job, JobStatus, StatusStep

SPEC = CrawlSpec(spider="seo", start_urls=("http://site.example/",), params={"render": True})


def test_a_job_is_what_its_order_says_and_where_it_comes_from() -> None:
    order = CrawlOrder(spec=SPEC, priority=3, tags=("a",), webhooks=("https://hook.example/",), max_retries=1)
    now = utc_now()
    job = Job.new("ada", order, "fingerprint", now, retry_of="other")
    assert job.order == order
    assert (job.user_id, job.fingerprint, job.retry_of, job.render) == ("ada", "fingerprint", "other", True)
    assert {job.created_at, job.updated_at, job.not_before} == {now}
    assert Job.new("ada", order, "fingerprint", now).id != job.id


def test_a_job_that_does_not_render_has_no_such_field() -> None:
    plain = CrawlOrder(spec=SPEC.model_copy(update={"params": {}}))
    assert "render" not in Job.new("ada", plain, "fingerprint", utc_now()).to_document()


@pytest.mark.parametrize(("before", "after"), list(itertools.product(sorted(FINAL_STATUSES), JobStatus)))
def test_no_job_that_has_ended_becomes_anything_else(before: JobStatus, after: JobStatus) -> None:
    with pytest.raises(ValueError, match=before):
        StatusStep.of(before, after)


@pytest.mark.parametrize("before", sorted(set(JobStatus) - FINAL_STATUSES))
def test_every_other_job_can_be_cancelled_and_stays_what_it_is_by_no_step(before: JobStatus) -> None:
    assert StatusStep.of(before, JobStatus.CANCELLED).query == {"status": before}
    assert before not in TRANSITIONS[before]
