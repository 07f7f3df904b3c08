"""Tells whoever is watching. Losing an announcement costs a watcher a second; so nothing here ever fails."""

from __future__ import annotations

import redis
import structlog

from gateway.crash_points import state_change
from gateway.domain import live_event, redis_keys
from gateway.domain.job import Job

log = structlog.get_logger()


class Announcer:
    def __init__(self, client: redis.Redis) -> None:
        self._redis = client

    @state_change("announcer.status")
    def status(self, job: Job) -> None:
        """Publish where the job stands now."""
        event = live_event.status_event(job)
        try:
            with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.publish(redis_keys.job_channel(job.id), event)
                pipeline.publish(redis_keys.ALL_EVENTS, event)
                pipeline.execute()
        except redis.RedisError as error:
            log.warning("announce_failed", job_id=job.id, error=str(error))
