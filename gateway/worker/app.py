"""The Celery application: how messages travel, and nothing of what they cause."""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.signals import setup_logging
from pymongo.database import Database

from gateway import logging
from gateway.container import Container, part
from gateway.services.broker import broker_settings
from gateway.settings import Settings
from gateway.storage.client import Document, connect
from gateway.storage.indexes import ensure_indexes
from gateway.worker.sign_of_life import SignOfLife
from gateway.worker.tasks import register_tasks
from gateway.worker.traced_task import TracedTask


class WorkerParts(Container):
    """A worker's or a beat's."""

    @part
    def database(self) -> Database[Document]:
        database = connect(self.mongo_uri)
        try:
            ensure_indexes(database)
        except BaseException:
            # the next who asks connects anew
            database.client.close()
            raise
        return self.connected(database)


def create_celery(settings: Settings) -> Celery:
    """The app for workers and beats. Nothing is connected before the first task or tick."""
    app = Celery("discoverybot", broker=settings.broker_location, task_cls=TracedTask)
    app.conf.update(
        **broker_settings(settings.broker_location, settings.queue_name),
        # a message is a hint: results are in MongoDB, and a repeated task finds nothing left to do
        task_ignore_result=True,
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        worker_pool="threads",
        worker_concurrency=settings.worker_concurrency,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        worker_consumer="gateway.worker.consumer:Consumer",
        beat_scheduler="gateway.worker.beat:MongoScheduler",
        # how long beat may sleep: our scheduler says itself when it wants to be called
        beat_max_loop_interval=settings.tick_seconds,
    )
    parts = WorkerParts(settings)
    parts.celery = app
    app.parts = parts
    register_tasks(app, parts)
    app.steps["worker"].add(SignOfLife)
    setup_logging.connect(_Logging(settings.log_level), weak=False)
    return app


class _Logging:
    """Keeps Celery from putting its own handlers in the place of ours."""

    def __init__(self, level: str) -> None:
        self._level = level

    def __call__(self, **_: Any) -> None:
        logging.configure(self._level)
