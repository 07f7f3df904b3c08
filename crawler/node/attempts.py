"""Attempts before they are launched: taken once, and taken back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from scrapyd.spiderqueue import SqliteSpiderQueue
from twisted.logger import Logger

from crawler.node.accounts import Account, Accounts
from crawler.node.attempt_files import NodeUnfitError, refuse
from crawler.node.project_names import canonical
from crawler.node.started_mark import StartedMark
from gateway.clock import time_of_node, utc_now
from gateway.contract.outbox import EXIT, SPEC, STARTED, AttemptId, NodeSpec, attempt_dir, is_there, write_atomically
from gateway.crash_points import state_change
from gateway.errors import InvalidRequestError

log = Logger()

#: Bytes of a spec's JSON.
MAX_SPEC = 2_000_000


class Queued(NamedTuple):
    """What Scrapyd's queue is told: names only, so that nothing of the work shows in `ps` or a log."""

    spider: str
    job: str
    version: str | None
    priority: float = 0.0


def parse_spec(text: str | None, attempt: AttemptId, project: str, spider: str) -> NodeSpec:
    """The spec in a request for this attempt, with the project's name as Scrapyd keeps it.

    Raises `InvalidRequestError`.
    """
    if text is None:
        raise InvalidRequestError("spec", "is required for an attempt of a job")
    if len(text) > MAX_SPEC:
        raise InvalidRequestError("spec", f"is larger than {MAX_SPEC} bytes")
    try:
        spec = NodeSpec.model_validate_json(text)
    except ValidationError as error:
        problem = error.errors()[0]
        raise InvalidRequestError(".".join(["spec", *map(str, problem["loc"])]), problem["msg"]) from None
    if spec.not_after.tzinfo is None:
        raise InvalidRequestError("spec.not_after", "needs a time zone")
    told = (spec.job_id, spec.attempt, canonical(spec.project).lower(), spec.spider)
    if told != (attempt.job_id, attempt.attempt, project.lower(), spider):
        raise InvalidRequestError("spec", "is of another attempt, project or spider than the request")
    return spec.model_copy(update={"project": project})


class Intake:
    """The one door by which attempts enter the queue. However often one is posted, it is queued once at a time,
    and once it has been launched, never again.
    """

    def __init__(
        self, outbox: Path, queues: dict[str, SqliteSpiderQueue], accounts: Accounts, min_free_bytes: int = 0
    ) -> None:
        self._outbox = outbox
        self._accounts = accounts
        self._queues = queues
        self._min_free_bytes = min_free_bytes

    def take(self, attempt: AttemptId, project: str, spec: NodeSpec, queued: Queued) -> None:
        """Queue the attempt unless it was. Raises `NodeUnfitError` if it is too late for it, or no room."""
        folder = attempt_dir(self._outbox, attempt)
        if is_there(folder / STARTED) or is_there(folder / EXIT):
            return
        if spec.not_after < time_of_node(self._outbox.parent):
            raise NodeUnfitError("spec.not_after has passed: the attempt is stale")
        if not is_there(folder / SPEC):
            self._require_room()
        write_spec(folder, spec, self._accounts.of(project))
        if not any(message["_job"] == queued.job for message in self._queues[project].list()):
            put(self._queues[project], queued)

    def _require_room(self) -> None:
        free = shutil.disk_usage(self._outbox).free
        if free < self._min_free_bytes:
            raise NodeUnfitError(f"the disk of this node is nearly full: {free >> 20} MiB are free")

    def withdraw(self, project: str, job: str) -> bool:
        """Take a job out of the queue; whether it was there. One of our attempts will not be launched any more."""
        pending = bool(remove(self._queues[project], job))
        attempt = AttemptId.parse(job)
        if attempt is not None and not is_there(attempt_dir(self._outbox, attempt) / STARTED):
            try:
                self._bar(attempt)
            except OSError:  # a full disk; it is out of the queue
                log.failure("cannot write down that {job} was cancelled", job=job)
        return pending

    def _bar(self, attempt: AttemptId) -> None:
        """Make the attempt's mark, so that nobody can launch it. Raises `OSError`."""
        folder = attempt_dir(self._outbox, attempt)
        if folder.exists() and (mark := StartedMark.make(folder, utc_now())):
            try:
                refuse(folder, attempt, "cancelled", stopped_by="cancel")
            finally:
                mark.release()


@state_change("node.write_spec")
def write_spec(folder: Path, spec: NodeSpec, account: Account) -> None:
    if folder.is_symlink():  # an earlier attempt of the job has put it there
        folder.unlink()
    account.make_folder(folder)
    # there are secrets in it; a folder of another user is closed to all others
    mode = 0o600 if account.uid is None else 0o644
    write_atomically(folder / SPEC, spec.model_dump_json(exclude_none=True).encode(), mode=mode)


@state_change("node.queue")
def put(queue: SqliteSpiderQueue, queued: Queued) -> None:
    version = {"_version": queued.version} if queued.version else {}
    queue.add(queued.spider, priority=queued.priority, _job=queued.job, **version)


@state_change("node.withdraw")
def remove(queue: SqliteSpiderQueue, job: str) -> Any:
    return queue.remove(lambda message: message["_job"] == job)
