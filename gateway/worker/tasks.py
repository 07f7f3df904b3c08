"""The tasks. Each says which service looks at what; whatever a task may do, the sweeper may do too."""

from __future__ import annotations

from typing import Any

from celery import Celery

from gateway.container import Container
from gateway.domain.node_files import AttemptId
from gateway.domain.room import Egg
from gateway.services import waker
from gateway.services.completion import Completion
from gateway.services.dispatch import Dispatch
from gateway.services.egg_delivery import EggDelivery
from gateway.services.retention import Retention
from gateway.services.webhooks import Webhooks
from gateway.storage.jobs import JobStore


def register_tasks(app: Celery, parts: Container) -> None:
    """Bind the tasks to `app`; their names are part of the contract with everything that sends them."""
    _register_node_tasks(app, parts)

    @app.task(name=waker.ENQUEUE_CRAWL)
    def enqueue_crawl(job_id: str | None = None, **_target: Any) -> None:
        # what a target's run is about stands in its document, too
        parts[Dispatch].fill(job_id, overdue=False)

    @app.task(name=waker.SEE_TO_OVERDUE)
    def see_to_overdue() -> None:
        parts[Dispatch].fill()

    @app.task(name=waker.FINISH_CRAWL)
    def finish_crawl(job_id: str) -> None:
        parts[Completion].conclude(job_id)

    @app.task(name=waker.CALL_WEBHOOKS)
    def call_webhooks(job_id: str) -> None:  # noqa: ARG001 - for the log; whatever is due is called
        parts[Webhooks].look()

    @app.task(name=waker.REMOVE_EXPIRED)
    def remove_expired() -> None:
        parts[Retention].run()

    @app.task(name=waker.BRING_EGG)
    def bring_egg(node: str, project: str, version: str) -> None:
        parts[EggDelivery].bring(node, Egg(project, version))


def _register_node_tasks(app: Celery, parts: Container) -> None:
    """What is asked of nodes. None of these waits for the node's answer."""

    @app.task(name=waker.CANCEL_CRAWL)
    def cancel_crawl(job_id: str) -> None:
        parts[Dispatch].cancel(parts[JobStore].get(job_id))

    @app.task(name=waker.POST_AGAIN)
    def post_again(job_id: str) -> None:
        parts[Dispatch].post_again(parts[JobStore].get(job_id))

    @app.task(name=waker.STOP_ATTEMPT)
    def stop_attempt(node: str, project: str, attempt: str) -> None:
        if attempt_id := AttemptId.parse(attempt):
            parts[Dispatch].stop(node, project, attempt_id)

    @app.task(name=waker.PROBE_NODE)
    def probe_node(node: str) -> None:
        # it gets work at once
        parts[Dispatch].probe(node, parts[Dispatch].fill)
