"""What the platform says about a job while it lives: in log lines, to clients that watch it, and to workers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

import orjson
import redis
import structlog
from celery import Celery
from structlog.contextvars import bound_contextvars

from gateway.clock import to_iso
from gateway.contract.log_line import LogEntry
from gateway.contract.records import Progress
from gateway.crash_points import state_change
from gateway.jobs.job import Job, JobStatus, run_id_of
from gateway.stores.broker import BrokerConnection, broker_settings, current_correlation
from gateway.stores.redis import ALL_EVENTS, job_channel

# --- what every log line about a job contains, among it a correlation id that is the same in all processes.
#
# The correlation id is the id of the request that asked for the job; for a job that a schedule made it is the job's
# own id. It is stored in the job's document, in the headers of messages about it, and in its attempts' `spec.json`.


def correlation_of(job: Job) -> str:
    """The correlation id of the job's log lines and messages."""
    return job.correlation_id or job.id


def about(job: Job) -> AbstractContextManager[object]:
    """A context in which every log line names the job."""
    names = {"run_id": run_id_of(job), "site_name": job.spec.site}
    known = {name: value for name, value in names.items() if value}
    return bound_contextvars(job_id=job.id, task_id=job.id, correlation_id=correlation_of(job), **known)


def about_message(job_id: str | None, correlation_id: str | None) -> AbstractContextManager[object]:
    """As `about`, for callers that do not have the job itself, but only a message about it or one of its attempts."""
    names = {"job_id": job_id, "task_id": job_id, "correlation_id": correlation_id or job_id}
    return bound_contextvars(**{name: value for name, value in names.items() if value})


# --- the messages on a job's pub/sub channel: each is a batch of events of one kind.
#
# They are JSON objects that differ by `kind`:
#
# - `{"kind": "log", "attempt": 1, "entries": [[start, end, "<the SSE data, as JSON text>"], …]}`: in order
# - `{"kind": "progress", "attempt": 1, "data": {…Progress…}}`
# - `{"kind": "status", "job_id": …, "user_id": …, "project": …, "data": {"status": …, "attempt": …, …}}`: also
#   published on `ALL_EVENTS`; from processes of release 0.2.0 without `project`


def log_event(attempt: int, entries: Sequence[LogEntry], each: Sequence[bytes]) -> bytes:
    """A message with log entries. `each` is the JSON of each entry."""
    rows = [[entry.start, entry.end, data.decode()] for entry, data in zip(entries, each, strict=True)]
    return orjson.dumps({"kind": "log", "attempt": attempt, "entries": rows})


def progress_event(attempt: int, progress: Progress) -> bytes:
    """The message with an attempt's progress."""
    data = progress.model_dump(mode="json", exclude={"at", "can_go_on", "hosts"})
    return orjson.dumps({"kind": "progress", "attempt": attempt, "data": data})


def status_data(job: Job) -> dict[str, Any]:
    """A job's status, as clients that watch the job receive it."""
    data: dict[str, Any] = {"status": job.status.value, "attempt": job.attempt}
    if job.status is JobStatus.SCHEDULED:
        data["next_run"] = to_iso(job.not_before)
    if job.waiting_reason:
        data["waiting_reason"] = job.waiting_reason.value
    if job.reason:
        data["reason"] = job.reason.value
    if job.message:
        data["message"] = job.message
    return data


def status_message(job: Job) -> dict[str, Any]:
    """The message with the job's present status."""
    about = {"job_id": job.id, "user_id": job.user_id, "project": job.spec.project}
    return {"kind": "status", **about, "data": status_data(job)}


def decode(message: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = orjson.loads(message)
    return decoded


# --- publishes events to the clients that watch. If an event is lost, a client learns of the change a second later.

log = structlog.get_logger()


class EventPublisher:
    """Publishes from a thread of its own, so that neither a crawl nor a beat's tick waits if Redis does not
    answer.
    """

    #: How many events may wait for Redis; if there are more, the oldest are dropped.
    MOST_WAITING = 1000

    def __init__(self, client: redis.Redis) -> None:
        self._redis = client
        #: Channel and event.
        self._events: deque[tuple[str, bytes]] = deque(maxlen=self.MOST_WAITING)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="events")

    def status(self, job: Job) -> None:
        """Publish the job's present status soon, after all earlier events. Never raises."""
        self._events.append((job_channel(job.id), orjson.dumps(status_message(job))))
        # submit raises only when the process is ending
        with suppress(RuntimeError):
            self._thread.submit(self._publish)

    def close(self) -> None:
        """Wait until all events were published, or could not be."""
        self._thread.shutdown()

    @state_change("announcer.status")
    def _publish(self) -> None:
        """Publish all waiting events. Usually there are none, because an earlier call has published them."""
        events = [self._events.popleft() for _ in range(len(self._events))]
        try:
            with self._redis.pipeline(transaction=False) as pipeline:
                for channel, event in events:
                    pipeline.publish(channel, event)
                    pipeline.publish(ALL_EVENTS, event)
                pipeline.execute()
        except redis.RedisError as error:
            log.warning("announce_failed", events=len(events), error=str(error))


# --- wakes a worker: "look at job X now". The message is only a hint: if it is lost, the sweeper finds the job.

ENQUEUE_CRAWL = "enqueue_crawl"
FINISH_CRAWL = "finish_crawl"
CANCEL_CRAWL = "cancel_crawl"
CALL_WEBHOOKS = "call_webhooks"
#: Tasks whose messages can name many jobs at once.
TOGETHER = frozenset({ENQUEUE_CRAWL, FINISH_CRAWL})
#: Tasks that beats of release 0.2.0 ask for. Workers now find this work by themselves.
OF_OLDER_BEATS = ("see_to_overdue", "post_again", "stop_attempt", "probe_node", "remove_expired", "bring_egg")


class Waker(Protocol):
    """Each method returns at once and never raises."""

    def wake(self, task: str, *args: Any) -> None:
        """Ask for `task` soon."""

    def wake_job(self, job: Job) -> None:
        """Ask a worker to look at this job. For a target's run, the message also contains the target's fields."""


class WithinWorker:
    """The waker of a worker. Tasks that this process can do itself are done here, without a message: that saves the
    broker's time and its own.
    """

    def __init__(self, waker: Waker, here: Mapping[str, Callable[..., object]]) -> None:
        """`here`: by the name of a task, a function that has it done in this process, and returns at once."""
        self._waker, self._here = waker, here

    def wake(self, task: str, *args: Any) -> None:
        self._here.get(task, partial(self._waker.wake, task))(*args)

    def wake_job(self, job: Job) -> None:
        if job.target:
            self._waker.wake_job(job)
        else:
            self.wake(ENQUEUE_CRAWL, job.id)


class _Message(NamedTuple):
    task: str
    args: tuple[Any, ...]
    fields: dict[str, Any]
    correlation_id: str | None
    asked_at: float

    @property
    def job_ids(self) -> list[str]:
        """The jobs that a message of a task in `TOGETHER` names: one or none."""
        return [*self.args, *filter(None, [self.fields.get("job_id")])]


def _together(looks: Sequence[_Message]) -> _Message:
    """One message in place of all these messages of one task. It names the first job in the form of a single message,
    so that a worker of an older release, which does not know `others`, can read that much. The sweep finds the other
    jobs.
    """
    first, *rest = sorted(looks, key=lambda look: not look.job_ids)
    others = [job_id for look in rest for job_id in look.job_ids]
    fields = {**first.fields, "others": others} if others else first.fields
    return first._replace(fields=fields, asked_at=min(look.asked_at for look in looks))


class CeleryWaker:
    """Publishes from a few threads of its own, so that an unreachable broker delays neither a request nor a tick.

    A worker that is asked about one job fills all free slots. So the first job is sent at once, and then one message
    every `PAUSE` seconds names all jobs that were added since then. The same goes for attempts that have ended.
    Messages about targets' runs are not gathered.
    """

    #: How many messages may wait for the broker, which takes about a second for 1,000. With more waiting, the sweeper
    #: would find the jobs sooner, so further messages are dropped. Schedules do not fire this many at once.
    MAX_WAITING = 10_000
    #: Seconds. If a call to the broker fails this long after a message was handed in, the message is dropped: a hint
    #: is not worth the time that another failing call takes.
    PATIENCE = 5.0
    #: For each task in `TOGETHER`: the seconds between two messages, and how many single messages can be merged into
    #: one.
    PAUSE = 0.025
    MOST_TOGETHER = 100

    def __init__(self, app: Celery, *, threads: int = 4) -> None:
        self._app = app
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="waker")
        self._connections: list[BrokerConnection] = []
        self._own = threading.local()
        self._declaring = threading.Lock()
        #: Messages that the broker has not accepted yet.
        self.unsent = 0
        self._lock = threading.Lock()
        self._failed_at = float("-inf")
        #: By task: messages that are not sent yet. While a task is a key here, a thread sends its messages.
        self._gathered: dict[str, deque[_Message]] = {}
        self._closing = threading.Event()

    def wake(self, task: str, *args: Any) -> None:
        message = _Message(task, args, {}, current_correlation(), time.monotonic())
        self._submit(message, is_single=task not in TOGETHER)

    def wake_job(self, job: Job) -> None:
        about = job.target.to_message(job.attempt) if job.target else {}
        fields = {"job_id": job.id, **about}
        message = _Message(ENQUEUE_CRAWL, (), fields, correlation_of(job), time.monotonic())
        self._submit(message, is_single=bool(job.target))

    def close(self) -> None:
        self._closing.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for line in self._connections:
            line.close()

    def _submit(self, message: _Message, *, is_single: bool) -> None:
        with self._lock:
            if self.unsent >= self.MAX_WAITING:
                return
            self.unsent += 1
            if not is_single:
                if message.task in self._gathered:
                    self._gathered[message.task].append(message)
                    return
                self._gathered[message.task] = deque([message])
        if is_single:
            self._threads.submit(self._publish, message)
        else:
            self._threads.submit(self._publish_gathered, message.task)

    def _publish_gathered(self, task: str) -> None:
        try:
            while messages := self._next(task):
                self._publish(_together(messages), len(messages))
                self._closing.wait(self.PAUSE)
        except BaseException:
            # after an unexpected error, the next message starts a new thread call
            with self._lock:
                self.unsent -= len(self._gathered.pop(task, ()))
            raise

    def _next(self, task: str) -> list[_Message]:
        with self._lock:
            waiting = self._gathered[task]
            if not waiting:
                del self._gathered[task]
            return [waiting.popleft() for _ in range(min(len(waiting), self.MOST_TOGETHER))]

    def _publish(self, message: _Message, count: int = 1) -> None:
        """Send one message, which replaces `count` messages."""
        connection = self._connection()
        # while closing, a message that has failed once is not tried again
        patience = 0.0 if self._closing.is_set() else self.PATIENCE
        try:
            if self._failed_at - message.asked_at < patience:
                with about_message(None, message.correlation_id):
                    connection.send(message.task, message.args, message.fields)
        except connection.errors as error:
            self._failed_at = time.monotonic()
            log.warning("wake_failed", task=message.task, error=str(error), kind=type(error).__name__)
        finally:
            with self._lock:
                self.unsent -= count

    def _connection(self) -> BrokerConnection:
        connection: BrokerConnection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = BrokerConnection(self._app, self._declaring)
            self._connections.append(connection)
        return connection


def create_producer(broker_url: str, queue_name: str) -> Celery:
    """A Celery app that can only send tasks, by name."""
    app = Celery("discoverybot", broker=broker_url, set_as_current=False)
    app.conf.update(task_ignore_result=True, broker_connection_retry=False, **broker_settings(broker_url, queue_name))
    return app
