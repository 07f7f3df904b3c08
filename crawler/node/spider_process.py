"""A spider's process as Scrapyd sees it: how it is stopped, kept within its limits, and reported.

The transport knows how the process was started (spawned or forked). It can be any object with `pid`, `usage`,
`signalProcess` and `kill_group`.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from scrapyd.launcher import ScrapyProcessProtocol
from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ProcessExitedAlready, ProcessTerminated
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure

from crawler.node.accounts import Account, Accounts, remove_temporary
from crawler.node.attempt_files import ended_report, note_stopping, with_account, without_folder, write_exit
from crawler.node.fork import WARM_UP, NotStartedError, ProcessLostError
from crawler.node.process_tree import MemoryShare, Snapshot, is_running
from crawler.node.reactor import reactor
from crawler.node.space import Space, exceeded
from crawler.node.stall_detection import StallDetector
from crawler.node.started_mark import StartedMark, read_mark
from gateway.clock import utc_now
from gateway.contract import outbox, records
from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, NodeSpec
from gateway.settings import NodeSettings

log = Logger()
#: The kernel's counters for the node's container.
_CGROUP_EVENTS = Path("/sys/fs/cgroup/memory.events")


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed because the container had no memory left; 0 outside of one."""
    with suppress(OSError, ValueError, KeyError):
        return int(dict(line.split() for line in _CGROUP_EVENTS.read_text().splitlines())["oom_kill"])
    return 0


class CrawlProcess(ScrapyProcessProtocol):
    """A crawl that is asked once to stop, and then killed. `deferred` fires when it has ended, even after errors."""

    deferred: Deferred[CrawlProcess]

    def __init__(self, project: str, spider: str, job: str, args: Sequence[str], grace: float) -> None:
        # without `env`, because Scrapyd logs `env` and `args` of its processes
        super().__init__(project, spider, job, env={}, args=list(args))
        self.stopped_by: str | None = None
        self._grace = grace
        self._killer: DelayedCall | None = None

    def stop(self, why: str, signal: str | int = "INT") -> None:
        """Ask the crawl to end, and kill it after the grace. Only the first reason counts. The signal is sent only
        once, because a second SIGINT makes Scrapy drop what it is working on.
        """
        if self.stopped_by is not None:
            return
        self.stopped_by = why
        self._killer = reactor.callLater(self._grace, self.kill)
        self.stopping(why)
        with suppress(ProcessExitedAlready, ProcessLookupError):
            self.transport.signalProcess(signal)

    def kill(self) -> None:
        """SIGKILL to the whole process group."""
        self.transport.kill_group()

    def processEnded(self, status: Failure) -> None:  # noqa: N802 - Twisted's name
        if self._killer is not None and self._killer.active():
            self._killer.cancel()
        accounted = maybeDeferred(self.ended, status)
        # even after an error, for example a full disk, the slot must be freed
        accounted.addErrback(lambda why: log.failure("cannot account for the end of {job}", why, job=self.job))
        accounted.addBoth(lambda _: super(CrawlProcess, self).processEnded(status))

    def stopping(self, why: str) -> None:
        """Called before the process is asked to stop."""

    def ended(self, status: Failure) -> Deferred[None] | None:  # noqa: ARG002 - attempts need it
        """Called at the end of the process, before the slot is freed."""
        return None


# --- an attempt of one of our jobs while it runs: limits held, exit report written


class AttemptProcess(CrawlProcess):
    def __init__(
        self,
        *,
        project: str,
        spider: str,
        attempt: AttemptId,
        args: Sequence[str],
        grace: float,
        folder: Path,
        mark: StartedMark,
        limits: AttemptLimits,
        account: Account,
    ) -> None:
        super().__init__(project, spider, str(attempt), args, grace)
        self._attempt = attempt
        self._folder = folder
        self._mark = mark
        self._stall_seconds = limits.stall
        self._account = account
        self._kills_before = out_of_memory_kills()
        #: Whether the crawl has removed the folder of its attempt.
        self._is_removed = False
        self._limits = LimitWatch(limits, account, self.stop, self.kill, self._removed)

    def connectionMade(self) -> None:  # noqa: N802 - Twisted's name
        super().connectionMade()
        self._limits.start(self.pid, self._folder)
        with suppress(OSError):  # a full disk; then it can only be found by its environment
            self._mark.note_pid(self.pid)

    def stopping(self, why: str) -> None:
        note_stopping(self._folder, why)

    def kill(self) -> None:
        try:
            if self.pid is not None and not self.transport.is_minded:
                self._account.kill_rest(self.pid, self._folder)
        finally:
            super().kill()

    def _removed(self) -> None:
        """Kill a crawl that has removed its own folder: without its mark nobody can follow it, and its results are
        lost. The folder is made again, so that the tailer sees the attempt.
        """
        self._is_removed = True
        with suppress(OSError):
            self._folder.mkdir(mode=0o700)
        self.kill()

    def ended(self, status: Failure) -> Deferred[None]:
        cleared = maybeDeferred(self._clear, status.value)
        cleared.addErrback(lambda why: log.failure("cannot clear up behind {job}", why, job=self.job))
        return cleared.addCallback(lambda _: self._report_end(status.value))

    def _clear(self, reason: BaseException | None) -> Deferred[None]:
        self._limits.stop()
        self._kill_rest(reason)
        opened = self._account.open_up(self._folder)
        return opened.addCallback(lambda _: remove_temporary(self._folder))

    def _kill_rest(self, reason: BaseException | None) -> None:
        if self.transport.is_minded:
            return
        # long after the end another process can have the id (not while the group exists)
        if self.pid is not None and not (isinstance(reason, ProcessLostError) and is_running(self.pid)):
            self._account.kill_rest(self.pid, self._folder)

    def _report_end(self, reason: BaseException | None) -> None:
        try:
            write_exit(self._folder, self._report(reason))
        finally:
            # only after the report: a free lock without a report would mean that none will be written
            self._mark.release()

    def _report(self, reason: BaseException | None) -> ExitReport:
        if isinstance(reason, NotStartedError):
            why = f"spawn_failed: {reason.why}"
            return ExitReport(
                attempt=self._attempt.attempt,
                ended_at=utc_now(),
                refused=why,
                fault=reason.fault,
                stopped_by=self.stopped_by,
            )
        terminated = reason if isinstance(reason, ProcessTerminated) else None
        report = ended_report(
            self._attempt,
            self._mark.started_at,
            exit_code=terminated.exitCode if terminated else 0,
            signal=terminated.signal if terminated else None,
            stopped_by=self.stopped_by,
            lost=isinstance(reason, ProcessLostError) or self._was_in_the_way(terminated),
        )
        if self.stopped_by == "stall":
            report = report.model_copy(update={"stall_seconds": self._stall_seconds})
        if usage := self.transport.usage:
            report = report.model_copy(update=usage._asdict())
        report = with_account(self._folder, report)
        return without_folder(report) if self._is_removed else report

    def _was_in_the_way(self, terminated: ProcessTerminated | None) -> bool:
        """Whether the kernel has killed it because all processes on this node together used too much memory."""
        is_killed = terminated is not None and terminated.signal == signal.SIGKILL and self.stopped_by is None
        return is_killed and out_of_memory_kills() > self._kills_before


# --- orphans: spiders that go on although the Scrapyd that started them was killed
#
# They occupy no slot, and the tailer reports their end. But their limits are enforced, and they can be cancelled: the
# mark has the process id, and as long as its lock is held that process, or its group, still exists.

#: Seconds between two checks whether an orphan has ended.
WATCH_INTERVAL = 0.5
#: Maximum number of seconds between the making of a mark and the start of its process, with a margin: the process may
#: have waited in vain for a zygote to get warm, and clocks are sometimes corrected.
SPAWN_TIME = WARM_UP + 60.0


class Orphan:
    """A process that is not this Scrapyd's child. `deferred` fires once it is gone."""

    def __init__(
        self,
        folder: Path,
        pid: int,
        started_at: datetime | None,
        limits: AttemptLimits,
        *,
        grace: float,
        account: Account,
    ) -> None:
        self.job = folder.name
        self.stopped_by = outbox.stopping_reason(folder)
        self.deferred: Deferred[Orphan] = Deferred()
        self._folder = folder
        self._pid = pid
        self._grace = grace
        self._account = account
        self._latest_start = (started_at or utc_now()).timestamp() + SPAWN_TIME
        self._limits = LimitWatch(limits, account, self.stop, self.kill)
        self._watch = LoopingCall(self._look)

    def start(self) -> None:
        self._limits.start(self._pid, self._folder)
        self._watch.start(WATCH_INTERVAL, now=False)
        if self.stopped_by is not None:  # a second SIGINT would make Scrapy drop what it is working on
            reactor.callLater(self._grace, self.kill)

    def stop(self, why: str, signal_id: str | int = "INT") -> None:
        """As `CrawlProcess.stop`."""
        if self.stopped_by is None and self._is_ours():
            self.stopped_by = why
            note_stopping(self._folder, why)
            reactor.callLater(self._grace, self.kill)
            number = signal.Signals[f"SIG{signal_id}"] if isinstance(signal_id, str) else signal_id
            with suppress(ProcessLookupError):
                self._account.signal(self._pid, number)

    def kill(self) -> None:
        if self._is_ours():
            self._account.kill_rest(self._pid, self._folder)

    def _is_ours(self) -> bool:
        """Whether the process, or at least its group, is still the attempt's. The lock could be held by a process
        that has left the group, while the id went to another process, which was started later.
        """
        if not outbox.is_locked(self._folder):
            return False
        try:
            return psutil.Process(self._pid).create_time() < self._latest_start
        except psutil.NoSuchProcess:
            return True  # the id is not given to another process as long as the group exists

    def _look(self) -> None:
        if not outbox.is_locked(self._folder):
            self._limits.stop()
            self._watch.stop()
            with suppress(OSError):  # processes that are left if the minder was killed
                self._account.kill_rest(None, self._folder)
            self.deferred.callback(self)


def find_orphans(settings: NodeSettings, accounts: Accounts) -> Iterator[Orphan]:
    """The attempts in the outbox that still run. Call this before this Scrapyd starts any."""
    for folder in sorted(settings.outbox.glob("*-*")):
        if (
            AttemptId.parse(folder.name) is None
            or outbox.is_there(folder / outbox.EXIT)
            or not outbox.is_locked(folder)
        ):
            continue
        pid, started_at = read_mark(folder)
        account = accounts.owner(folder)
        pid = pid or account.find_leader(folder)
        if pid is None:
            continue
        spec = records.read_record(folder / outbox.SPEC, NodeSpec)
        elapsed = (utc_now() - started_at).total_seconds() if started_at else 0.0
        timeout = (spec.timeout if spec else NodeSpec.model_fields["timeout"].default) - elapsed
        yield Orphan(
            folder, pid, started_at, limits_of(settings, timeout), grace=settings.crawl_stop_grace, account=account
        )


# --- limits of one attempt that are checked from outside: time, memory, processes, log, files, and stalls

#: Seconds between two checks of the processes and their memory.
PROCESS_INTERVAL = 1.0
#: Seconds for which one list of all processes is used.
FRESH = 0.5
#: Seconds between two checks of the size of the log; less, down to the minimum, when it grows quickly.
LOG_INTERVAL = 0.25
LOG_INTERVAL_MIN = 0.02
#: Seconds between two checks that the attempt's folder exists.
FOLDER_INTERVAL = 1.0
#: Seconds between two measurements of the attempt's files: usually, and while the disk is nearly full. That is when
#: less is free than `NEARLY_FULL` times `AttemptLimits.free`.
FILES_INTERVAL, FILES_INTERVAL_MIN = 5.0, 0.5
NEARLY_FULL = 4
#: Share of `AttemptLimits.free` that an attempt can always take. With less, the attempt does not cause a full disk.
SPARED = 1 / 16
#: After so many failed measurements in a row (folders may be moved all the time) the limit counts as exceeded.
MOST_NOT_MEASURED = 12
#: Share of the log limit that an attempt can exceed it by while it is asked to stop; beyond that it is killed.
LOG_SLACK = 0.25


class AttemptLimits(NamedTuple):
    #: Seconds from now.
    timeout: float
    #: Bytes of memory of all processes of the attempt, including a browser; 0 is no limit.
    memory: int = 0
    #: Bytes of `crawl.log`; 0 is no limit. Python's logging keeps within it by itself (`LogLimit`).
    log: int = 0
    #: Seconds in which nothing happens; 0 is no limit.
    stall: float = 0
    #: Bytes of all files that the attempt has written, without its `records`; 0 is no limit.
    files: int = 0
    #: Processes at a time; 0 is no limit.
    processes: int = 0
    #: Number of files and folders; 0 is no limit.
    entries: int = 0
    #: Bytes of its items, requests and frontier; 0 is no limit.
    records: int = 0
    #: If fewer bytes than this are free on the disk, the attempt must not have written more than is free. It is twice
    #: what the node needs for new work, so that other jobs are not kept waiting; 0 is no limit.
    free: int = 0


def limits_of(settings: NodeSettings, timeout: float) -> AttemptLimits:
    """The limits of the node's settings, with the `timeout` of the attempt (seconds from now)."""
    return AttemptLimits(
        timeout,
        settings.crawl_memory_limit,
        settings.crawl_max_log_bytes,
        settings.crawl_stall_seconds,
        2 * settings.files_max_bytes,
        settings.crawl_max_processes,
        settings.crawl_max_entries,
        settings.crawl_max_record_bytes,
        2 * settings.node_min_free_bytes,
    )


class SharedSnapshot:
    """Lists all processes in a thread. Callers that ask at about the same time share one list."""

    def __init__(self) -> None:
        self._taken_at = float("-inf")
        self._latest: Snapshot | None = None
        self._waiting: list[Deferred[Snapshot]] = []

    def get(self) -> Deferred[Snapshot]:
        result: Deferred[Snapshot] = Deferred()
        if self._latest is not None and time.monotonic() - self._taken_at < FRESH:
            result.callback(self._latest)
            return result
        self._waiting.append(result)
        if len(self._waiting) == 1:
            deferToThread(Snapshot.take).addBoth(self._answer)
        return result

    def _answer(self, result: Any) -> None:
        waiting, self._waiting = self._waiting, []
        if isinstance(result, Snapshot):
            self._latest, self._taken_at = result, time.monotonic()
        for one in waiting:
            one.callback(result)


class LimitWatch:
    """Calls `exceeded` once, with the name of the first limit that is exceeded (timeout, memory, processes, log,
    stall, files, entries, records, disk).

    `flooding` is called if the log goes on growing after that, `removed` if the attempt's folder is gone.
    """

    #: Shared by all attempts.
    _processes = SharedSnapshot()

    def __init__(
        self,
        limits: AttemptLimits,
        account: Account,
        exceeded: Callable[[str], None],
        flooding: Callable[[], None] | None = None,
        removed: Callable[[], None] | None = None,
    ) -> None:
        self._limits = limits
        self._account = account
        self._exceeded = exceeded
        self._flooding = flooding
        self._removed = removed
        self._reported = False
        self._is_over = False
        #: How many measurements of the files have failed in a row.
        self._not_measured = 0
        #: Descriptor of the log.
        self._log: int | None = None
        #: The next check of each kind, by what it checks.
        self._calls: dict[str, DelayedCall] = {}

    def start(self, pid: int, folder: Path | None = None) -> None:
        """Begin to watch a process. `folder` is its attempt's, or the one in which it lists spiders; without it, only
        time, memory and processes count.
        """
        if self._is_over:  # it was stopped before it began
            return
        self._later("timeout", max(0.0, self._limits.timeout), self._report, "timeout")
        if self._limits.memory or self._limits.processes:
            self._later("processes", PROCESS_INTERVAL, self._look_at_processes, pid)
        if folder is not None:
            self._start_in(folder, pid)

    def _start_in(self, folder: Path, pid: int) -> None:
        with suppress(OSError):
            # kept open, because a log that is deleted can go on growing
            self._log = outbox.open_file(folder / outbox.LOG)
        if self._limits.log and self._log is not None:
            self._later("log", LOG_INTERVAL, self._look_at_log, self._log, 0)
        if self._limits.stall:
            detector = StallDetector(folder, self._log, self._limits.stall)
            self._later("stall", detector.interval, self._look_for_stall, detector)
        if self._removed is not None:
            self._look_at_folder(folder, _number(folder))
        if any((self._limits.files, self._limits.entries, self._limits.records, self._limits.free)):
            self._measure_later(folder, pid)

    def stop(self) -> None:
        self._is_over = True
        for call in self._calls.values():
            if call.active():
                call.cancel()
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _later(self, about: str, seconds: float, call: Callable[..., None], *args: object) -> None:
        self._calls[about] = reactor.callLater(seconds, call, *args)

    def _look_at_processes(self, pid: int) -> None:
        self._processes.get().addCallback(self._count, pid).addErrback(_not_seen).addBoth(self._look_again, pid)

    def _look_again(self, _: object, pid: int) -> None:
        if not self._is_over:
            self._later("processes", PROCESS_INTERVAL, self._look_at_processes, pid)

    def _count(self, snapshot: Snapshot, pid: int) -> Deferred[None] | None:
        """Check the number of processes and their memory. Shared memory is expensive to measure, so that is only done
        if the sum of all resident bytes is above the limit.
        """
        family = snapshot.family(pid)
        if 0 < self._limits.processes < len(family) and not self._is_over:
            self._report("processes")
        if self._is_over or not 0 < self._limits.memory < sum(process.resident for process in family):
            return None
        shares = [MemoryShare(process.pid, process.resident) for process in family]
        return self._account.weigh(self._limits.memory, shares).addCallback(self._weighed)

    def _weighed(self, is_too_much: bool) -> None:  # noqa: FBT001 - a callback's result
        if is_too_much and not self._is_over:
            self._report("memory")

    def _look_at_log(self, log: int, size_before: int) -> None:
        size, limit = os.fstat(log).st_size, self._limits.log
        in_a_hurry = size + 4 * (size - size_before) > limit
        self._later("log", LOG_INTERVAL_MIN if in_a_hurry else LOG_INTERVAL, self._look_at_log, log, size)
        if size > limit:
            self._report("log")
        if size > limit * (1 + LOG_SLACK) and self._flooding is not None:
            flooding, self._flooding = self._flooding, None
            flooding()

    def _look_at_folder(self, folder: Path, number: int | None) -> None:
        if number is not None and _number(folder) == number:
            self._later("folder", FOLDER_INTERVAL, self._look_at_folder, folder, number)
        elif self._removed is not None:
            self._removed()

    def _look_for_stall(self, detector: StallDetector) -> None:
        self._later("stall", detector.interval, self._look_for_stall, detector)
        if detector.seconds() >= self._limits.stall:
            self._report("stall")

    def _look_at_files(self, folder: Path, pid: int) -> None:
        most = Space(self._limits.files, self._limits.entries, self._limits.records)
        seen = self._processes.get().addCallback(lambda found: [process.pid for process in found.family(pid)])
        measured = seen.addCallback(lambda family: self._account.measure(folder, most, family))
        measured.addErrback(_not_seen).addCallback(self._weigh, most, folder)
        measured.addBoth(lambda _: self._measure_later(folder, pid))

    def _measure_later(self, folder: Path, pid: int) -> None:
        if not self._is_over:
            is_near = _free(folder) < NEARLY_FULL * self._limits.free
            self._later("files", FILES_INTERVAL_MIN if is_near else FILES_INTERVAL, self._look_at_files, folder, pid)

    def _weigh(self, taken: Space | None, most: Space, folder: Path) -> None:
        if self._is_over:
            return
        self._not_measured = 0 if taken else self._not_measured + 1
        if self._not_measured == MOST_NOT_MEASURED:
            self._report("files")
        elif taken and (limit := exceeded(taken, most)):
            self._report(limit)
        elif taken and self._is_greedy(taken, _free(folder)):
            self._report("disk")

    def _is_greedy(self, taken: Space, free: float) -> bool:
        """Whether the attempt is the reason why the disk runs full: it has written more than is left for all."""
        total = taken.bytes + taken.records
        return free < self._limits.free and total > max(free, SPARED * self._limits.free)

    def _report(self, limit: str) -> None:
        if not self._reported:
            self._reported = True
            self._exceeded(limit)


def _not_seen(failure: Failure) -> None:
    log.failure("cannot list the processes", failure)


def _free(folder: Path) -> float:
    """Free bytes of the folder's disk; infinite if that cannot be found out."""
    with suppress(OSError):
        return shutil.disk_usage(folder).free
    return math.inf


def _number(folder: Path) -> int | None:
    """The folder's inode number, which tells it from a new folder of the same name; `None` if it is gone."""
    with suppress(OSError):
        return folder.lstat().st_ino
    return None
