"""Scrapyd's launcher: one spider process per slot. A slot is always freed when its process ends."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Mapping
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

from scrapyd.exceptions import DirectoryTraversalError
from scrapyd.interfaces import IEnvironment, IPoller
from scrapyd.launcher import Launcher, get_crawl_args
from scrapyd.poller import QueuePoller
from scrapyd.utils import get_file_path
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger

from crawler.frontier.journal import CONTINUES, find_attempt_to_continue
from crawler.net.bot_auth import as_variable
from crawler.node.accounts import TEMPORARY, Account, Accounts
from crawler.node.attempt_files import NodeUnfitError, fault_of, reason_behind, write_refusal
from crawler.node.attempt_limits import limits_of
from crawler.node.config import NodeConfig, NodeEnvironment
from crawler.node.fork import ForkServer, Start, WarmVenvs, room_for_warm
from crawler.node.projects import OWN_PROJECT, ProjectCode
from crawler.node.reactor import reactor
from crawler.node.spawn import spawn
from crawler.node.spider_lists import spider_lists
from crawler.node.spider_process import AttemptProcess, CrawlProcess, Orphan, find_orphans
from crawler.node.started_mark import StartedMark
from gateway.clock import time_of_node, utc_now
from gateway.contract.outbox import LOG, SPEC, AttemptId, attempt_dir, read_file, whole_text
from gateway.contract.records import NodeSpec, read_record
from gateway.crash_points import state_change
from gateway.private_names import require_names

require_names("scrapyd", Launcher, "_spawn_process", "_process_finished", "_get_message")
log = Logger()


class NodeLauncher(Launcher):
    """Starts attempts with their mark, limits and exit report. Any other job runs as in Scrapyd, but its output goes
    to its log, and it gets a process group of its own and the allow-listed environment.
    """

    def __init__(self, config: NodeConfig, app: Any) -> None:
        super().__init__(config, app)
        self.settings = config.settings
        #: Attempts that a former Scrapyd has left running, by job id.
        self.orphans: dict[str, Orphan] = {}
        #: Variables of attempts that wait for a slot, by job id. They are only in memory.
        self.environments: dict[str, dict[str, str]] = {}
        self._identity = as_variable(self.settings.bot_identity)
        #: The warm process that crawls are forked from, with all imports done, and a small one that starts other
        #: commands.
        self.warm: ForkServer | None = None
        self.starter: ForkServer | None = None
        most = self.settings.project_warm_processes if self.settings.node_fork else 0
        self._warm_venvs = WarmVenvs(room_for_warm() if most is None else most, self._fork_server)

    def startService(self) -> None:  # noqa: N802 - Twisted's name
        for orphan in find_orphans(self.settings, self.accounts):
            self.orphans[orphan.job] = orphan
            orphan.deferred.addCallback(lambda ended: self.orphans.pop(ended.job))
            orphan.start()
            log.info("{job} is still running", job=orphan.job)
        env, account = self.environment.for_project(OWN_PROJECT), self.accounts.of(OWN_PROJECT)
        renew_after = self.settings.node_fork_renew_after
        if self.settings.node_fork:
            self.warm = ForkServer(self.runner, env, renew_after, account)
            self.warm.start()
        if account.uid is None:  # otherwise the keeper, itself a small process, starts what is not forked
            self.starter = ForkServer(None, env, renew_after, account)
            self.starter.start()
        super().startService()

    def stopService(self) -> Deferred[Any]:  # noqa: N802 - Twisted's name
        """Ask every spider to stop and wait for them. Those that have not ended after the grace are killed."""
        self.app.getComponent(IPoller).stop()
        self._warm_venvs.stop()
        for forks in filter(None, (self.warm, self.starter)):
            forks.stop()
        super().stopService()
        running = [*self.processes.values(), *self.orphans.values()]
        for process in running:
            process.stop("shutdown")
        return DeferredList([process.deferred for process in running])

    @property
    def environment(self) -> NodeEnvironment:
        environment: NodeEnvironment = self.app.getComponent(IEnvironment)
        return environment

    @property
    def accounts(self) -> Accounts:
        accounts: Accounts = self.app.getComponent(Accounts)
        return accounts

    def _spawn_process(self, message: dict[str, Any], slot: int) -> None:
        started = False
        try:
            started = self._launch(message, slot)
        except Exception:  # noqa: BLE001 - no error may cost a slot
            log.failure("cannot launch {job}", job=message.get("_job"))
        if not started:
            self.processes.pop(slot, None)
            self._get_message(slot)

    def _process_finished(self, _result: object, slot: int) -> None:
        # as Scrapyd's method, but an error of the finished-jobs store must not occupy the slot for ever
        process = self.processes.pop(slot)
        process.end_time = dt.datetime.now()  # noqa: DTZ005 - Scrapyd keeps local times
        try:
            self.finished.add(process)
        except Exception:  # noqa: BLE001 - the list of finished jobs is only for people to look at
            log.failure("cannot remember {job}", job=process.job)
        self._get_message(slot)

    def _launch(self, message: dict[str, Any], slot: int) -> bool:
        """Start the message's job in `slot`; false if there is nothing to run."""
        attempt = AttemptId.parse(message["_job"])
        return self._launch_job(message, slot) if attempt is None else self._launch_attempt(message, attempt, slot)

    def _launch_job(self, message: dict[str, Any], slot: int) -> bool:
        project, spider, job = message["_project"], message["_spider"], message["_job"]
        code = self._code(message)
        settings = self.environment.get_settings(message)
        output = Path(settings.pop("LOG_FILE"))
        args = get_crawl_args({**message, "settings": {**message.get("settings", {}), **settings}})
        process = CrawlProcess(project, spider, job, self._command(code, *args), self.settings.crawl_stop_grace)
        account = self.accounts.of(project)
        with ExitStack() as stack:
            own = nullcontext(output.parent) if account.uid is None else account.folder_for_a_moment()
            env = self._environment(message, slot, account, stack.enter_context(own), code)
            stack.enter_context(spider_lists(self.app).holds.hold(code))
            self._occupy(slot, process)
            spawn(process, process.args, env, output, account=account)
            ends = stack.pop_all()
        process.deferred.addBoth(_close, ends)
        return True

    def _launch_attempt(self, message: dict[str, Any], attempt: AttemptId, slot: int) -> bool:
        folder = attempt_dir(self.settings.outbox, attempt)
        variables = self.environments.pop(str(attempt), {})
        if message["_project"] == OWN_PROJECT:
            variables = {**variables, **self._identity}
        elif not variables and _has_variables(folder):
            # Scrapyd was restarted after it received the variables. The gateway posts the attempt again
            log.info("{attempt} waits for its variables", attempt=str(attempt))
            return False
        mark = StartedMark.make(folder, utc_now())
        if mark is None:
            log.info("{attempt} was launched before", attempt=str(attempt))
            return False
        try:
            return self._start(message, attempt, slot, folder, mark, variables)
        except Exception as error:  # noqa: BLE001 - every reason not to start it is the attempt's outcome
            log.failure("cannot start {attempt}", attempt=str(attempt))
            _refuse(
                folder, attempt, mark, f"spawn_failed: {error}", fault=fault_of(error), reason=reason_behind(error)
            )
            return False

    def _start(  # noqa: PLR0917 - one call, right above
        self,
        message: dict[str, Any],
        attempt: AttemptId,
        slot: int,
        folder: Path,
        mark: StartedMark,
        variables: Mapping[str, str],
    ) -> bool:
        project, spider, spec = message["_project"], message["_spider"], _spec_in(folder)
        if spec.not_after < time_of_node(self.settings.node_dir):
            _refuse(folder, attempt, mark, "stale", fault="node")
            return False
        code = self._code(message)
        account = self.accounts.of(project)
        if account.uid not in {None, self.accounts.owner(folder).uid}:
            raise NodeUnfitError("it was queued before the project had a user of its own")
        # Scrapyd cannot read the environment of a process with variables; it finds it by the folder in its arguments
        named = [str(folder)] if variables else []
        process = AttemptProcess(
            project=project,
            spider=spider,
            attempt=attempt,
            args=self._command(code, spider, *named),
            grace=self.settings.crawl_stop_grace,
            folder=folder,
            mark=mark,
            limits=limits_of(self.settings, spec.timeout),
            account=account,
        )
        env = {**self._environment(message, slot, account, folder, code), **_of_attempt(folder, mark, spec)}
        account.make_temporary(folder)
        with ExitStack() as stack:
            stack.enter_context(spider_lists(self.app).holds.hold(code, folder))
            self._show_log(project, spider, folder)
            self._occupy(slot, process)
            self._run(process, Start(process.args, env, folder, folder / LOG, mark, account, variables), code)
            process.deferred.addBoth(_close, stack.pop_all())
        log.info("{attempt} is started, correlation id {id}", attempt=str(attempt), id=spec.correlation_id)
        return True

    def _run(self, process: AttemptProcess, start: Start, code: ProjectCode) -> None:
        """Fork the crawl from a warm process that has its user and its Python, if there is one. Otherwise a small
        process starts it, because Linux counts the peak memory of the starting process as the crawl's own.
        """
        for forks in filter(None, (self._warm_for(code, start), self.starter)):
            if forks.account is start.account and forks.fork(process, start):
                return
        start.spawn(process)

    def _warm_for(self, code: ProjectCode, start: Start) -> ForkServer | None:
        if code.is_plain:
            return self.warm
        # a project's own user must have no process besides its crawls, so that nothing is left when these have ended
        return self._warm_venvs.get(code) if start.account.uid is None else None

    def _fork_server(self, code: ProjectCode) -> ForkServer:
        account = self.accounts.of(OWN_PROJECT)
        env = {**self.environment.for_project(OWN_PROJECT), **code.environment}
        return ForkServer(self.runner, env, self.settings.node_fork_renew_after, account, code)

    def _code(self, message: dict[str, Any]) -> ProjectCode:
        """The code that runs the message's job. Raises `EggMissingError`."""
        project, version = message["_project"], message.get("_version")
        return spider_lists(self.app).code(project, version, message["_spider"])

    def _environment(
        self, message: dict[str, Any], slot: int, account: Account, folder: Path, code: ProjectCode
    ) -> dict[str, str]:
        env: dict[str, str] = self.environment.get_environment(message, slot)
        return {**env, **account.environment(folder), **code.environment}

    def _command(self, code: ProjectCode, *args: str) -> list[str]:
        return code.command(self.runner, "crawl", *args)

    def _occupy(self, slot: int, process: CrawlProcess) -> None:
        # before the spawn: a process that ends at once is reported before the spawn returns
        self.processes[slot] = process
        process.deferred.addBoth(self._process_finished, slot)

    def _show_log(self, project: str, spider: str, folder: Path) -> None:
        """Link the log to where Scrapyd's console expects it. Nothing else uses the link, so errors are ignored."""
        with suppress(OSError, DirectoryTraversalError):
            shown = get_file_path(self.environment.logs_dir, project, spider, f"{folder.name}.log")
            _link_log(Path(shown.path), folder / LOG)


def _of_attempt(folder: Path, mark: StartedMark, spec: NodeSpec) -> dict[str, str]:
    """Variables that let the process of an attempt know what to run."""
    names = {"DISCOVERYBOT_ATTEMPT_DIR": folder, "DISCOVERYBOT_MARK_FD": mark.fd, "TMPDIR": folder / TEMPORARY}
    before = find_attempt_to_continue(folder, spec.frontier_since)
    return {name: str(value) for name, value in names.items()} | {CONTINUES: str(before or "")}


def _close(result: Any, ends: ExitStack) -> Any:
    ends.close()
    return result


@state_change("node.link_log")
def _link_log(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)


def _spec_in(folder: Path) -> NodeSpec:
    try:
        return NodeSpec.model_validate(whole_text(json.loads(read_file(folder / SPEC))))
    except (ValueError, RecursionError):
        raise ValueError(f"{SPEC} cannot be read") from None


def _has_variables(folder: Path) -> bool:
    spec = read_record(folder / SPEC, NodeSpec)
    return spec is not None and spec.has_env


def _refuse(folder: Path, attempt: AttemptId, mark: StartedMark, why: str, **facts: Any) -> None:
    try:
        write_refusal(folder, attempt, why, **facts)
    finally:
        mark.release()


# --- polling the queues when there is a reason to, instead of every few seconds


class PushPoller(QueuePoller):
    """Polls the queues when it is kicked, because a job was queued or a slot became free. Scrapyd's timer stays as a
    safety net, and no exception ends it (Scrapyd's issues #279 and #543): if the queue of one project is broken, that
    is logged and the others are polled.
    """

    #: Projects from whose queues nothing is taken yet.
    held_back: Collection[str] = ()
    _kicked = False
    _stopped = False

    def kick(self) -> None:
        """Poll soon; several kicks lead to one poll."""
        if not self._kicked:
            self._kicked = True
            reactor.callLater(0, self.poll)

    def next(self) -> Deferred[dict[str, Any]]:
        slot: Deferred[dict[str, Any]] = super().next()
        self.kick()
        return slot

    def stop(self) -> None:
        """Take nothing from the queues any more, because a message that is taken now would be lost."""
        self._stopped = True

    def poll(self) -> None:
        self._kicked = False
        for project, queue in list(self.queues.items()):
            try:
                if project not in self.held_back:
                    self._drain(project, queue)
            except Exception:  # noqa: BLE001 - the next poll must come after any error
                log.failure("cannot poll the queue of {project}", project=project)

    def _drain(self, project: str, queue: Any) -> None:
        """Hand messages to free slots. `dq.put` runs the launcher before it returns, so a message is always either in
        the queue or launched. Only a kill can lose one; then the gateway posts it again.
        """
        while self.dq.waiting and not self._stopped and (message := queue.pop()) is not None:
            self.dq.put(
                {**{k: v for k, v in message.items() if k != "name"}, "_project": project, "_spider": message["name"]}
            )
