"""A task whose log lines carry the id that its message came with."""

from __future__ import annotations

from typing import Any

import structlog
from celery import Task

from gateway.correlation import HEADER, about_message
from gateway.services import waker

log = structlog.get_logger()

#: The first argument of each is the job's id.
_ABOUT_A_JOB = frozenset(
    {waker.ENQUEUE_CRAWL, waker.FINISH_CRAWL, waker.CANCEL_CRAWL, waker.POST_AGAIN, waker.CALL_WEBHOOKS}
)


class TracedTask(Task):
    """Of all tasks of ours. What they do to other jobs than the message's they log under those jobs' ids."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        job_id = _job_id(args, kwargs) if self.name in _ABOUT_A_JOB else None
        with about_message(job_id, self.request.get(HEADER)):
            log.debug("task_began", task=self.name)
            return super().__call__(*args, **kwargs)


def _job_id(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    job_id: str | None = kwargs.get("job_id", args[0] if args else None)
    return job_id
