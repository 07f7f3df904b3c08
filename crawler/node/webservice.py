"""Scrapyd's web services where ours differ: scheduling, cancelling, listing."""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import re
import signal as signals
import uuid
from contextlib import suppress
from typing import Any, NoReturn

from scrapyd import webservice
from scrapyd.exceptions import DirectoryTraversalError, RunnerError
from scrapyd.webservice import param
from twisted.internet.defer import ensureDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import error, http
from twisted.web.server import NOT_DONE_YET, Request

from crawler.node.attempt_files import NodeUnfitError, fault_of
from crawler.node.attempts import Intake, Queued, parse_spec
from crawler.node.spider_lists import spider_lists
from gateway.contract.outbox import AttemptId, NodeSpec, instance_of
from gateway.crash_points import state_change
from gateway.errors import DiscoveryBotError

log = Logger()

#: Ids of jobs that are not ours. They become file names.
_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
#: Bytes; Linux takes no longer command-line argument, and the job would vanish.
_MAX_ARGUMENT = 100_000


def refuse(message: str) -> NoReturn:
    """Scrapyd's way of saying no."""
    raise error.Error(code=http.OK, message=message.encode())


class AsyncService(webservice.WsResource):
    """A service that may wait for something while others are served."""

    #: The one method it answers to.
    method = "POST"

    async def answer(self, request: Request) -> dict[str, Any]:
        """The answer, as JSON. Raises what is answered as an error."""
        raise NotImplementedError

    @property
    def methods(self) -> str:
        return f"OPTIONS, {self.method}"

    def render(self, request: Request) -> Any:
        if request.method != self.method.encode():
            return super().render(request)
        gone: list[object] = []
        request.notifyFinish().addErrback(gone.append)
        answer = ensureDeferred(self._answer(request))
        answer.addErrback(self._failed).addCallback(self._send, request, gone)
        answer.addErrback(lambda failure: log.failure("cannot answer", failure))
        return NOT_DONE_YET

    async def _answer(self, request: Request) -> dict[str, Any]:
        return await self.answer(request)  # what Scrapyd's `param` raises, it raises before there is a coroutine

    def _failed(self, failure: Failure) -> dict[str, Any]:
        problem = failure.value
        told = {"status": "error", "fault": fault_of(problem)}
        if isinstance(problem, error.Error):
            return {**told, "message": (problem.message or b"").decode()}
        if isinstance(problem, DiscoveryBotError):
            return {**told, "message": problem.message, "code": problem.code}
        log.failure("a web service failed", failure)
        return {**told, "message": f"{type(problem).__name__}: {problem}"}

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
            refuse(f"project '{project}' not found")
        if version and not self._has(project, version):
            refuse(f"version '{version}' not found")

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
    async def answer(  # noqa: PLR0917 - `param` hands them over by name
        self,
        request: Request,
        project: str,
        spider: str,
        version: str | None,
        jobid: str,
        priority: float,
        setting: list[str],
        spec: str | None,
    ) -> dict[str, Any]:
        queued = Queued(spider, jobid, version, priority)
        self.require_project(project, version)
        if attempt := AttemptId.parse(jobid):
            if setting or request.args:
                refuse("an attempt of a job takes no settings or arguments but those in its spec")
            await self._take(attempt, project, parse_spec(spec, attempt, project, spider), queued)
        elif not _JOB_ID.fullmatch(jobid):
            refuse("jobid is invalid: up to 100 letters, digits, - and _")
        else:
            if spec is not None:
                refuse("jobid is not that of an attempt, which a spec belongs to")
            await self._queue_job(project, queued, setting, _arguments(request))
        self.root.poller.kick()
        return {"jobid": jobid}

    async def _take(self, attempt: AttemptId, project: str, spec: NodeSpec, queued: Queued) -> None:
        self._require_instance(spec)
        queued = queued._replace(version=queued.version or spec.version)
        spec = spec.model_copy(update={"version": queued.version})
        self.require_project(project, queued.version)
        try:
            known = await spider_lists(self.root.app).has(project, queued.version, queued.spider)
        except RunnerError:
            known = True  # the project is broken: its own log is where that is said best
        if not known:
            refuse(f"spider '{queued.spider}' not found")
        self._intake().take(attempt, project, spec, queued)

    def _require_instance(self, spec: NodeSpec) -> None:
        """What is meant for another machine of this name may be there already. Raises `NodeUnfitError`."""
        with suppress(OSError):
            if spec.instance not in {None, instance_of(self.root.launcher.settings.node_dir)}:
                raise NodeUnfitError("it is meant for another machine that has, or had, this node's name")

    def _intake(self) -> Intake:
        launcher, settings = self.root.launcher, self.root.launcher.settings
        return Intake(settings.outbox, self.root.poller.queues, launcher.accounts, settings.node_min_free_bytes)

    async def _queue_job(self, project: str, queued: Queued, settings: list[str], arguments: dict[str, str]) -> None:
        if not await spider_lists(self.root.app).has(project, queued.version, queued.spider):
            refuse(f"spider '{queued.spider}' not found")
        if queued.version:
            arguments["_version"] = queued.version
        self._schedule(project, queued, dict(text.split("=", 1) for text in settings), arguments)

    @state_change("node.queue_job")
    def _schedule(self, project: str, queued: Queued, settings: dict[str, str], arguments: dict[str, str]) -> None:
        self.root.scheduler.schedule(
            project, queued.spider, priority=queued.priority, settings=settings, _job=queued.job, **arguments
        )


class Cancel(webservice.WsResource):
    """`cancel.json`: pending, running, or left running by a Scrapyd that was killed. Asked politely, then killed."""

    @param("project")
    @param("job")
    @param("signal", required=False, default="INT")
    def render_POST(  # noqa: N802 - Twisted's name
        self, _request: Request, project: str, job: str, signal: str
    ) -> dict[str, str | None]:
        if project not in self.root.poller.queues:
            refuse(f"project '{project}' not found")
        number = _signal_number(signal)
        launcher = self.root.launcher
        running = [p for p in launcher.processes.values() if (p.project, p.job) == (project, job)]
        if job in launcher.orphans:
            running.append(launcher.orphans[job])
        for process in running:
            process.stop("cancel", number)
            if number == signals.SIGKILL:
                process.kill()
        pending = Intake(launcher.settings.outbox, self.root.poller.queues, launcher.accounts).withdraw(project, job)
        return {"prevstate": "running" if running else "pending" if pending else None}


class ListSpiders(AsyncService):
    """`listspiders.json`: as Scrapyd's, which would hand its whole environment to the project it lists."""

    method = "GET"

    @param("project")
    @param("_version", dest="version", required=False, default=None)
    async def answer(self, _request: Request, project: str, version: str | None) -> dict[str, Any]:
        self.require_project(project, version)
        return {"spiders": await spider_lists(self.root.app).names(project, version)}


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
