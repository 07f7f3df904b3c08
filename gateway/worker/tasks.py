"""The tasks. Each says which service looks at what; whatever a task may do, the sweeper may do too."""

from __future__ import annotations

from typing import Any

from celery import Celery

from gateway.domain.node_files import AttemptId
from gateway.domain.room import Egg
from gateway.services import waker
from gateway.worker.wiring import Wiring


def register_tasks(app: Celery, wiring: Wiring) -> None:
    """Bind the tasks to `app`; their names are part of the contract with everything that sends them."""
    _register_node_tasks(app, wiring)

    @app.task(name=waker.ENQUEUE_CRAWL)
    def enqueue_crawl(job_id: str | None = None, **_target: Any) -> None:
        # what a target's run is about stands in its document, too
        wiring.dispatch.fill(job_id)

    @app.task(name=waker.FINISH_CRAWL)
    def finish_crawl(job_id: str) -> None:
        wiring.completion.conclude(job_id)

    @app.task(name=waker.CALL_WEBHOOKS)
    def call_webhooks(job_id: str) -> None:  # noqa: ARG001 - for the log; whatever is due is called
        wiring.webhooks.look()

    @app.task(name=waker.REMOVE_EXPIRED)
    def remove_expired() -> None:
        wiring.retention.run()

    @app.task(name=waker.BRING_EGG)
    def bring_egg(node: str, project: str, version: str) -> None:
        wiring.egg_delivery.bring(node, Egg(project, version))


def _register_node_tasks(app: Celery, wiring: Wiring) -> None:
    """What is asked of nodes. None of these waits for the node's answer."""

    @app.task(name=waker.CANCEL_CRAWL)
    def cancel_crawl(job_id: str) -> None:
        wiring.dispatch.cancel(wiring.jobs.get(job_id))

    @app.task(name=waker.POST_AGAIN)
    def post_again(job_id: str) -> None:
        wiring.dispatch.post_again(wiring.jobs.get(job_id))

    @app.task(name=waker.STOP_ATTEMPT)
    def stop_attempt(node: str, project: str, attempt: str) -> None:
        if attempt_id := AttemptId.parse(attempt):
            wiring.dispatch.stop(node, project, attempt_id)

    @app.task(name=waker.PROBE_NODE)
    def probe_node(node: str) -> None:
        wiring.dispatch.probe(node)
