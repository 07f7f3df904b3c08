"""The web services in which this node differs from Scrapyd: scheduling, cancelling, listing, deploying."""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import json
import re
import shutil
import signal as signals
import uuid
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pydantic import TypeAdapter, ValidationError
from scrapyd import webservice
from scrapyd.exceptions import DirectoryTraversalError, RunnerError
from scrapyd.spiderqueue import SqliteSpiderQueue
from scrapyd.webservice import param
from twisted.internet.defer import ensureDeferred
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import error, http
from twisted.web.server import NOT_DONE_YET, Request

from crawler.node.accounts import Account
from crawler.node.attempt_files import NodeUnfitError, fault_of, reason_behind, write_refusal
from crawler.node.eggs import stored_version
from crawler.node.launcher import NodeLauncher
from crawler.node.projects import OWN_PROJECT, canonical, is_project_name
from crawler.node.spider_lists import Listing, spider_lists
from crawler.node.started_mark import StartedMark
from crawler.node.venv_queue import WAIT
from crawler.node.webroot import Form, NodeRequest
from gateway.clock import time_of_node, utc_now
from gateway.contract import outbox
from gateway.contract.environment import MAX_HANDED_BYTES, MAX_VARIABLES, check_variables
from gateway.contract.outbox import AttemptId, StopReason
from gateway.contract.reasons import Reason
from gateway.contract.records import MAX_ANSWERED, NodeSpec, SpiderInfo, has_more_values
from gateway.crash_points import state_change
from gateway.errors import DiscoveryBotError, InvalidRequestError

log = Logger()

#: Ids of jobs that are not ours. They become file names.
_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
#: Maximum number of bytes of a command-line argument. Linux limits its length, and a job with a longer one would
#: vanish.
_MAX_ARGUMENT = 100_000
#: Maximum number of bytes of an answer about an egg's spiders, and of values in the rest of the answer. The platform
#: refuses answers of more than 16 MiB or more than `MAX_ANSWERED` values.
MOST_TOLD, _OTHER_VALUES = 12 << 20, 100
_VARIABLES = TypeAdapter(dict[str, str])


class RefusalError(error.Error):
    """A refusal, in the form of Scrapyd's errors."""

    def __init__(self, message: str, reason: Reason | None) -> None:
        super().__init__(code=http.OK, message=message.encode())
        self.reason = reason


def refuse(message: str, reason: Reason | None = None) -> NoReturn:
    """Answer with an error; `reason` is its code. Raises `RefusalError`."""
    raise RefusalError(message, reason)


class AsyncService(webservice.WsResource):
    """A service that can wait for something while other requests are served."""

    #: The only HTTP method that it allows.
    method = "POST"

    async def answer(self, request: NodeRequest) -> dict[str, Any]:
        """The answer, as JSON. An exception becomes an error in the answer."""
        raise NotImplementedError

    @property
    def methods(self) -> str:
        return f"OPTIONS, {self.method}"

    def render(self, request: NodeRequest) -> Any:
        if request.method != self.method.encode():
            return super().render(request)
        gone: list[object] = []
        request.notifyFinish().addErrback(gone.append)
        answer = ensureDeferred(self._answer(request))
        answer.addErrback(self._failed).addCallback(self._send, request, gone)
        answer.addErrback(lambda failure: log.failure("cannot answer", failure))
        return NOT_DONE_YET

    async def _answer(self, request: NodeRequest) -> dict[str, Any]:
        return await self.answer(request)  # Scrapyd's `param` raises before there is a coroutine

    def _failed(self, failure: Failure) -> dict[str, Any]:
        problem = failure.value
        said = {"status": "error", "fault": fault_of(problem)}
        if reason := reason_behind(problem):
            said["reason"] = reason
        if isinstance(problem, error.Error):
            return {**said, "message": (problem.message or b"").decode()}
        if isinstance(problem, DiscoveryBotError):
            return {**said, "message": problem.message, "code": problem.code}
        log.failure("a web service failed", failure)
        return {**said, "message": f"{type(problem).__name__}: {problem}"}

    def _send(self, data: dict[str, Any], request: Request, gone: list[object]) -> None:
        if gone:
            return
        answer = {"status": "ok", **data, "node_name": self.root.node_name}
        content = self.json_encoder.encode(answer).encode() + b"\n"
        request.setHeader(b"Content-Type", b"application/json")
        request.setHeader(b"Content-Length", str(len(content)).encode())
        request.write(content)
        request.finish()

    def require_project(self, project: str, version: str | None = None) -> None:
        if project not in self.root.poller.queues:
            refuse(f"project '{project}' not found", Reason.PROJECT_MISSING)
        if version and not self._has(project, version):
            refuse(f"version '{version}' not found", Reason.PROJECT_MISSING)

    def _has(self, project: str, version: str) -> bool:
        try:
            return bool(self.root.eggstorage.has(project, version))
        except DirectoryTraversalError:
            return False


class Schedule(AsyncService):
    """`schedule.json`. A `jobid` that names an attempt needs its `spec`, and may be posted again and again."""

    @param("project")
    @param("spider")
    @param("_version", dest="version", required=False, default=None)
    @param("jobid", required=False, default=lambda: uuid.uuid1().hex)
    @param("priority", required=False, default=0, type=float)
    @param("setting", required=False, default=list, multiple=True)
    @param("spec", required=False, default=None)
    @param("env", required=False, default=None)
    async def answer(  # noqa: PLR0917 - `param` passes them by name
        self,
        request: Request,
        project: str,
        spider: str,
        version: str | None,
        jobid: str,
        priority: float,
        setting: list[str],
        spec: str | None,
        env: str | None,
    ) -> dict[str, Any]:
        queued = Queued(spider, jobid, version, priority)
        self.require_project(project, version)
        if attempt := AttemptId.parse(jobid):
            if setting or request.args:
                refuse("an attempt of a job takes no settings or arguments but those in its spec")
            work = parse_spec(spec, attempt, project, spider)
            await self._take(attempt, project, work, queued, parse_variables(env, work))
        elif not _JOB_ID.fullmatch(jobid):
            refuse("jobid is invalid: up to 100 letters, digits, - and _")
        else:
            if spec is not None or env is not None:
                refuse("jobid is not an attempt's, but spec and env are only for attempts")
            await self._queue_job(project, queued, setting, _arguments(request))
        self.root.poller.kick()
        return {"jobid": jobid}

    async def _take(
        self, attempt: AttemptId, project: str, spec: NodeSpec, queued: Queued, env: dict[str, str]
    ) -> None:
        self._require_instance(spec)
        queued = queued._replace(version=queued.version or spec.version)
        spec = spec.model_copy(update={"version": queued.version})
        self.require_project(project, queued.version)
        try:
            known = await spider_lists(self.root.app).has(project, queued.version, queued.spider)
        except RunnerError:
            known = True  # the project is broken, and the log of its crawl best explains why
        if not known:
            refuse(f"spider '{queued.spider}' not found", Reason.SPIDER_MISSING)
        self._intake().take(attempt, project, spec, queued, env)

    def _require_instance(self, spec: NodeSpec) -> None:
        """Refuse an attempt that is for another machine with this name: it may run there already. Raises
        `NodeUnfitError`.
        """
        with suppress(OSError):
            if spec.instance not in {None, outbox.instance_of(self.root.launcher.settings.node_dir)}:
                raise NodeUnfitError("it is meant for another machine that has, or had, this node's name")

    def _intake(self) -> Intake:
        return Intake(self.root.launcher, self.root.poller.queues)

    async def _queue_job(self, project: str, queued: Queued, settings: list[str], arguments: dict[str, str]) -> None:
        if not await spider_lists(self.root.app).has(project, queued.version, queued.spider):
            refuse(f"spider '{queued.spider}' not found", Reason.SPIDER_MISSING)
        if queued.version:
            arguments["_version"] = queued.version
        self._schedule(project, queued, dict(text.split("=", 1) for text in settings), arguments)

    @state_change("node.queue_job")
    def _schedule(self, project: str, queued: Queued, settings: dict[str, str], arguments: dict[str, str]) -> None:
        self.root.scheduler.schedule(
            project, queued.spider, priority=queued.priority, settings=settings, _job=queued.job, **arguments
        )


class Cancel(AsyncService):
    """`cancel.json`: cancels a job that is pending, running, or left running by a Scrapyd that was killed. A running
    job is asked to stop first, and killed if it does not.
    """

    @param("project")
    @param("job")
    @param("signal", required=False, default="INT")
    @param("why", required=False, default="cancel")
    async def answer(self, _request: Request, project: str, job: str, signal: str, why: str) -> dict[str, Any]:
        self.require_project(project)
        number, reason = _signal_number(signal), _stop_reason(why)
        launcher = self.root.launcher
        running = [p for p in launcher.processes.values() if (p.project, p.job) == (project, job)]
        if job in launcher.orphans:
            running.append(launcher.orphans[job])
        for process in running:
            process.stop(reason, number)
            if number == signals.SIGKILL:
                process.kill()
        pending = Intake(launcher, self.root.poller.queues).withdraw(project, job, reason)
        return {"prevstate": "running" if running else "pending" if pending else None}


class Withdraw(webservice.WsResource):
    """`withdraw.json`: whether this node has taken an attempt. If it has not, it never will, even if the request
    arrives later. The platform uses this when it got no answer to that request, and another node could run the job.
    """

    @param("project")
    @param("job")
    def render_POST(self, _request: Request, project: str, job: str) -> dict[str, bool]:  # noqa: N802 - as above
        if project not in self.root.poller.queues:
            refuse(f"project '{project}' not found", Reason.PROJECT_MISSING)
        if (attempt := AttemptId.parse(job)) is None:
            refuse("job is not an attempt of a job")
        return {"taken": Intake(self.root.launcher, self.root.poller.queues).was_taken(project, attempt)}


class ListSpiders(AsyncService):
    """`listspiders.json`, as Scrapyd's. But Scrapyd would pass its whole environment to the project that it lists."""

    method = "GET"

    @param("project")
    @param("_version", dest="version", required=False, default=None)
    async def answer(self, _request: Request, project: str, version: str | None) -> dict[str, Any]:
        self.require_project(project, version)
        return {"spiders": await spider_lists(self.root.app).names(project, version)}


class Dependencies(AsyncService):
    """`dependencies.json`: how the installation of a version's dependencies has gone, also if the egg was refused."""

    method = "GET"

    @param("project")
    @param("version")
    async def answer(self, _request: Request, project: str, version: str) -> dict[str, Any]:
        _require_names(project, version)
        return spider_lists(self.root.app).dependencies(project, stored_version(version))


def _arguments(request: Request) -> dict[str, str]:
    arguments = {name.decode(): values[0].decode() for name, values in request.args.items()}
    for name, value in arguments.items():
        if len(name) + len(value.encode()) > _MAX_ARGUMENT:
            refuse(f"argument '{name}' is too long for a command line")
    return arguments


def _signal_number(text: str) -> int:
    try:
        return signals.Signals(int(text)) if text.isdigit() else signals.Signals[f"SIG{text.removeprefix('SIG')}"]
    except (KeyError, ValueError):
        refuse(f"signal '{text}' is unknown")


def _stop_reason(text: str) -> StopReason:
    for reason in outbox.WITHDRAWN:
        if text == reason:
            return reason
    refuse(f"why '{text}' is unknown: {' or '.join(outbox.WITHDRAWN)}")


# --- deploying and removing eggs


class AddVersion(AsyncService):
    """`addversion.json`: an egg is examined before it is stored, and refused if it could not be run. After the
    answer, the next crawl on any node runs this version.
    """

    async def answer(self, request: NodeRequest) -> dict[str, Any]:
        storage, lists = self.root.eggstorage, spider_lists(self.root.app)
        form = Form()
        staged = await deferToThread(storage.stage, lambda file: form.read(request, file))
        try:
            project, version = form.field("project"), form.field("version")
            project = canonical(project, self.root.poller.queues)
            _require_names(project, version)
            if not zipfile.is_zipfile(staged):
                refuse("egg is not a ZIP file (if using curl, use egg=@path not egg=path)", Reason.EGG_UNREADABLE)
            with lists.examining():
                listing = await self._examine(staged, project, version, _seconds(form.field("wait", "")))
                storage.put_staged(staged, project, version)
                self.root.update_projects()
                lists.deployed(project, version, listing)
        finally:
            storage.discard(staged)
            lists.remove_unused()
        answer = {"project": project, "version": version, "spiders": len(listing.spiders)}
        if form.field("by", "") == outbox.BY_PLATFORM:
            return {**answer, **told_of(listing.spiders)}
        await self._make_known(project, stored_version(version))
        return answer

    async def _make_known(self, project: str, version: str) -> None:
        try:
            await spider_lists(self.root.app).make_known(project, version)
        except RunnerError as error:
            refuse(str(error))

    async def _examine(self, staged: Path, project: str, version: str, wait: float) -> Listing:
        try:
            listing = await spider_lists(self.root.app).examine(staged, project, version, within=wait)
        except RunnerError as error:
            refuse(f"the egg of '{project}' is refused: {_last_line(str(error))}", reason_behind(error))
        if listing.problem:
            refuse(f"the egg of '{project}' is refused: {listing.problem}", listing.reason)
        if problem := spider_lists(self.root.app).too_much(project, version, listing.spiders):
            refuse(f"the egg of '{project}' is refused: {problem}", Reason.TOO_MANY_SPIDERS)
        return listing


class DeleteProject(webservice.DeleteProject):
    """`delproject.json`: as Scrapyd's; the catalogue is rewritten afterwards."""

    @param("project")
    def render_POST(self, _request: Request, project: str) -> dict[str, Any]:  # noqa: N802 - Twisted's name
        self._delete_version(project)
        spider_lists(self.root.app).undeployed()
        return {}


class DeleteVersion(webservice.DeleteVersion):
    """`delversion.json`: as Scrapyd's; the catalogue is rewritten. Attempts that run the version keep its folder."""

    @param("project")
    @param("version")
    def render_POST(self, _request: Request, project: str, version: str) -> dict[str, Any]:  # noqa: N802 - as above
        self._delete_version(project, version)
        spider_lists(self.root.app).undeployed()
        return {}


def told_of(spiders: Iterable[SpiderInfo]) -> dict[str, Any]:
    """The answer about an egg's spiders. It is empty if it would be more than the platform reads; then the node's
    tailer reports them, spider by spider.
    """
    infos = [info.model_dump(mode="json") for info in spiders]
    told = json.dumps(infos).encode()
    is_short = len(told) <= MOST_TOLD and not has_more_values(told, MAX_ANSWERED - _OTHER_VALUES)
    return {"infos": infos} if is_short else {}


def _seconds(text: str) -> float:
    """The seconds for which a deployment waits until its dependencies are installed."""
    try:
        return min(max(float(text), 0.0), WAIT) if text else WAIT
    except ValueError:
        refuse(f"wait '{text}' is no number of seconds")


def _require_names(project: str, version: str) -> None:
    if project == OWN_PROJECT:
        refuse(f"project '{project}' is the node's own and has no egg: deploy under another name")
    if not is_project_name(project):
        refuse(f"project '{project}' cannot be the name of a folder: use letters, digits, space, '_', '-' and '.'")
    try:
        stored_version(version)
    except DirectoryTraversalError:
        refuse(f"version '{version}' cannot be the name of a file: up to 100 letters, digits, '_', '-' and '.'")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:500] if lines else "its spiders could not be listed"


# --- attempts before they are launched: queued once, and withdrawn

#: Bytes of a spec's JSON.
MAX_SPEC = 2_000_000


class Queued(NamedTuple):
    """A message in Scrapyd's queue. It has names only, so that no parameters appear in `ps` or in a log."""

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
    named = (spec.job_id, spec.attempt, canonical(spec.project).lower(), spec.spider)
    if named != (attempt.job_id, attempt.attempt, project.lower(), spider):
        raise InvalidRequestError("spec", "is of another attempt, project or spider than the request")
    # without the variables, because the spec is written to a file
    return spec.model_copy(update={"project": project, "env": {}})


def parse_variables(text: str | None, spec: NodeSpec) -> dict[str, str]:
    """The job's variables. They must be there if, and only if, the spec says so. Raises `InvalidRequestError`, whose
    message quotes no value.
    """
    variables = _variables_in(text) if text else {}
    if bool(variables) != spec.has_env:
        raise InvalidRequestError("env", "does not fit spec.has_env")
    return variables


def _variables_in(text: str) -> dict[str, str]:
    try:
        variables = _VARIABLES.validate_json(text)
        check_variables(variables, MAX_HANDED_BYTES, most=2 * MAX_VARIABLES)
    except ValidationError:
        raise InvalidRequestError("env", "is no JSON object of texts") from None
    except ValueError as error:
        raise InvalidRequestError("env", str(error)) from None
    return variables


class Intake:
    """The only way into the queue for attempts. However often an attempt is posted, it is in the queue at most once,
    and after its launch it is never queued again.
    """

    def __init__(self, launcher: NodeLauncher, queues: dict[str, SqliteSpiderQueue]) -> None:
        self._outbox = launcher.settings.outbox
        self._accounts = launcher.accounts
        self._environments = launcher.environments
        self._queues = queues
        self._min_free_bytes = launcher.settings.node_min_free_bytes
        self._min_free_inodes = launcher.settings.node_min_free_inodes

    def take(self, attempt: AttemptId, project: str, spec: NodeSpec, queued: Queued, env: dict[str, str]) -> None:
        """Queue the attempt unless it is queued already, or has run. Raises `NodeUnfitError` if it is stale or the
        disk is nearly full.
        """
        folder = outbox.attempt_dir(self._outbox, attempt)
        if outbox.is_there(folder / outbox.STARTED) or outbox.is_there(folder / outbox.EXIT):
            return
        if spec.not_after < time_of_node(self._outbox.parent):
            raise NodeUnfitError("spec.not_after has passed: the attempt is stale")
        if not outbox.is_there(folder / outbox.SPEC):
            self._require_room()
        _write_spec(folder, spec, self._accounts.of(project))
        if env:
            self._environments[queued.job] = env
        if not any(message["_job"] == queued.job for message in self._queues[project].list()):
            _put(self._queues[project], queued)

    def _require_room(self) -> None:
        free = shutil.disk_usage(self._outbox).free
        if free < self._min_free_bytes:
            raise NodeUnfitError(f"the disk of this node is nearly full: {free >> 20} MiB are free", Reason.DISK_FULL)
        if (inodes := outbox.free_inodes(self._outbox)) < self._min_free_inodes:
            more = f"the disk of this node is nearly full: {inodes} more files can be made there"
            raise NodeUnfitError(more, Reason.DISK_FULL)

    def withdraw(self, project: str, job: str, why: StopReason = "cancel") -> bool:
        """Take a job out of the queue; return whether it was there. An attempt cannot be launched after that."""
        pending = bool(_remove(self._queues[project], job))
        self._environments.pop(job, None)
        attempt = AttemptId.parse(job)
        if attempt is not None and not outbox.is_there(outbox.attempt_dir(self._outbox, attempt) / outbox.STARTED):
            try:
                self._bar(attempt, why)
            except OSError:  # the disk may be full; the job is out of the queue anyway
                log.failure("cannot write down that {job} was withdrawn", job=job)
        return pending

    def was_taken(self, project: str, attempt: AttemptId) -> bool:
        """Whether the attempt was taken. If not, its mark is made, so that it never can be. Raises `OSError`."""
        folder = outbox.attempt_dir(self._outbox, attempt)
        if outbox.is_there(folder / outbox.SPEC):
            return True
        self._accounts.of(project).make_folder(folder)
        if mark := StartedMark.make(folder, utc_now()):
            try:
                write_refusal(folder, attempt, "stale", fault="node")
            finally:
                mark.release()
        return False

    def _bar(self, attempt: AttemptId, why: StopReason) -> None:
        """Make the attempt's mark, so that nobody can launch it. Raises `OSError`."""
        folder = outbox.attempt_dir(self._outbox, attempt)
        if folder.exists() and (mark := StartedMark.make(folder, utc_now())):
            try:
                write_refusal(folder, attempt, outbox.WITHDRAWN[why], stopped_by=why)
            finally:
                mark.release()


@state_change("node.write_spec")
def _write_spec(folder: Path, spec: NodeSpec, account: Account) -> None:
    if folder.is_symlink():  # put there by an earlier attempt of the job
        folder.unlink()
    account.make_folder(folder)
    # the spec has secrets; if the project has a user of its own, the folder itself is closed to others
    mode = 0o600 if account.uid is None else 0o644
    outbox.write_atomically(folder / outbox.SPEC, spec.model_dump_json(exclude_none=True).encode(), mode=mode)


@state_change("node.queue")
def _put(queue: SqliteSpiderQueue, queued: Queued) -> None:
    version = {"_version": queued.version} if queued.version else {}
    queue.add(queued.spider, priority=queued.priority, _job=queued.job, **version)


@state_change("node.withdraw")
def _remove(queue: SqliteSpiderQueue, job: str) -> Any:
    return queue.remove(lambda message: message["_job"] == job)
