"""What a node is told of an attempt that it is to run."""

from __future__ import annotations

from gateway.correlation import correlation_of
from gateway.domain.job import Assignment, Job
from gateway.domain.node_files import NodeSpec


def node_spec(job: Job, assignment: Assignment) -> NodeSpec:
    spec = job.spec
    return NodeSpec(
        job_id=job.id,
        attempt=assignment.attempt,
        project=spec.project,
        spider=spec.spider,
        version=spec.version,
        start_urls=list(spec.start_urls),
        depth=spec.depth,
        params=spec.params,
        max_pages=spec.max_pages,
        max_items=spec.max_items,
        timeout=spec.timeout,
        ignore_cache=spec.ignore_cache,
        not_after=assignment.until,
        fetch=spec.fetch,
        site=spec.site,
        site_rate_limit=spec.site_rate_limit,
        user_id=job.user_id,
        correlation_id=correlation_of(job),
        instance=assignment.instance,
    )
