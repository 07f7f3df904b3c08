"""Starts the processes of a table in order, restarts those that die, and stops all of them in reverse order.

It has one thread and one asyncio loop. `waitpid` is called only here, because the supervisor must also reap orphans,
which it has inherited and never started.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
from attrs import define, field

from embedded.stack.child import Child, StackLog
from embedded.stack.parent_death import adopt_orphans
from embedded.stack.process import Process
from embedded.stack.zygote import StackZygote
from gateway.process import NEWER_STORES

#: The first pause before a restart, in seconds; it doubles with each death.
BACKOFF = 0.2
#: After a process has lived for this many seconds, its next pause is short again.
STEADY = 30.0
#: The stack is given up if a process has died this often before the stack was ever ready.
GIVE_UP_AFTER = 5
#: Seconds between two checks of a process that is not ready yet.
_LOOK = 0.1
#: While a process is not ready, the log reports what it waits for each time this many seconds have passed.
PATIENCE = 5.0
#: Seconds from Ctrl-C until everything has ended, even if processes hang. All processes share this time.
STOP_SECONDS = 13.0
#: The last seconds of this time that are reserved for stopping the stores, and the last of these for left-over
#: processes.
_STORES_SECONDS, _STRAYS_SECONDS = 2.0, 0.5
#: A process has this many seconds to end before the next process, which it may need, is stopped, too.
_HEAD_START = 1.0
#: Two Ctrl-Cs within this many seconds count as one: `make` and `uv run` send the signal again that the terminal has
#: already sent to all processes.
_ONE_CTRL_C = 0.5


class _StopAskedError(Exception):
    """Ends the task group."""


@define(eq=False, repr=False, slots=False)
class Supervisor:
    """Keeps `processes` alive from `run()` until a signal (or `stop()`) ends it."""

    _processes: Sequence[Process]
    _cwd: Path
    _log: StackLog
    _backoff_max: float
    _stray_grace: float
    _stop_seconds: float
    _on_start: Callable[[], None]
    _zygote: StackZygote | None
    _patience: float = PATIENCE
    _children: dict[str, Child] = field(init=False, factory=dict)
    _waiting: dict[str, str] = field(init=False, factory=dict)
    _stopping: asyncio.Event = field(init=False, factory=asyncio.Event)
    _stop_asked_at: float = field(init=False, default=0.0)
    _announced: bool = field(init=False, default=False)
    _failed: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._ready = {process.name: asyncio.Event() for process in self._processes}

    @property
    def pids(self) -> dict[str, int]:
        """Ids of the processes that are alive now."""
        return {name: child.pid for name, child in self._children.items() if child.alive and child.pid}

    async def run(self, announce: Callable[[], Awaitable[None]]) -> int:
        """Start everything, call `announce` once all processes are ready, and run until a signal or `stop()`.

        Returns 0, or 1 if the stack never became ready.
        """
        adopt_orphans()
        self._listen()
        try:
            async with asyncio.TaskGroup() as group:
                for process in self._processes:
                    group.create_task(self._keep_alive(process))
                group.create_task(self._report_waiting())
                group.create_task(self._announce(announce))
                group.create_task(self._until_stopped())
        except* _StopAskedError:
            pass
        finally:
            await self._stop_all()
        return 1 if self._failed else 0

    def stop(self) -> None:
        self._stopping.set()

    async def _until_stopped(self) -> None:
        await self._stopping.wait()
        raise _StopAskedError

    # Signals

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(signum, partial(self._stop_signal, signum))

    def _stop_signal(self, signum: signal.Signals) -> None:
        if not self._stopping.is_set():
            self._stop_asked_at = time.monotonic()
            self._log.say(f"{signum.name}: stopping" + ("; Ctrl-C again kills" * (signum == signal.SIGINT)))
            self.stop()
        elif signum == signal.SIGINT and time.monotonic() - self._stop_asked_at > _ONE_CTRL_C:
            self._log.say("killing everything")
            self._stray_grace = 0
            for child in self._children.values():
                child.signal(signal.SIGKILL)

    def _reap(self) -> None:
        by_pid = {child.pid: child for child in self._children.values() if child.alive}
        with suppress(ChildProcessError):  # no children at all
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if child := by_pid.get(reaped[0]):
                    child.end(os.waitstatus_to_exitcode(reaped[1]))

    # Keeping alive

    async def _keep_alive(self, process: Process) -> None:
        await self._until_all_ready(process.needs)
        if process.forkable and self._zygote:
            await self._zygote.warm_up()
        backoff, deaths = BACKOFF, 0
        while True:
            child = self._start(process)
            looking = asyncio.create_task(self._look_until_ready(process))
            try:
                await child.ended.wait()
            finally:
                looking.cancel()
            await child.drain()
            deaths += 1
            backoff = BACKOFF if child.age > STEADY else backoff
            if self._hopeless(child, deaths):
                return
            self._log.say(f"{_obituary(child)}; starting it again in {backoff:.1f} s")
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, self._backoff_max)

    def _start(self, process: Process) -> Child:
        self._log.detail(f"starting {process.name}")
        child = self._children[process.name] = Child(process, self._cwd, self._log, self._zygote)
        self._on_start()
        return child

    def _hopeless(self, child: Child, deaths: int) -> bool:
        """Whether to give up: the process keeps dying and the stack was never ready, so a restart does not help."""
        if self._announced or (deaths < GIVE_UP_AFTER and child.exit_code != NEWER_STORES):
            return False
        often = f", {deaths} times now" if deaths > 1 else ""
        self._log.say(f"{_obituary(child)}{often}: giving up. Its last lines:")
        for line in child.tail:
            self._log.say(f"  {child.process.name} | {line}")
        self._failed = True
        self.stop()
        return True

    # Readiness

    @property
    def _all_ready(self) -> bool:
        return all(event.is_set() for event in self._ready.values())

    async def _until_all_ready(self, names: Iterable[str]) -> None:
        for name in names:
            await self._ready[name].wait()

    async def _look_until_ready(self, process: Process) -> None:
        while (missing := await process.probe()) is not None:
            self._waiting[process.name] = missing
            await asyncio.sleep(_LOOK)
        self._waiting.pop(process.name, None)
        if not self._ready[process.name].is_set():
            self._log.ready(process, self._children[process.name].age)
        self._ready[process.name].set()

    async def _report_waiting(self) -> None:
        while not self._all_ready:
            await asyncio.sleep(self._patience)
            for name, missing in self._waiting.items():
                if self._children[name].age >= self._patience:
                    self._log.say(f"waiting for {name}: {missing}")

    async def _announce(self, announce: Callable[[], Awaitable[None]]) -> None:
        await self._until_all_ready(self._ready)
        await announce()
        self._announced = True

    # Stopping

    async def _stop_all(self) -> None:
        end = time.monotonic() + self._stop_seconds
        for goes_last, until in ((False, end - _STORES_SECONDS), (True, end - _STRAYS_SECONDS)):
            going = []
            for process in reversed(self._processes):
                child = self._children.get(process.name)
                if child is not None and process.goes_last is goes_last:
                    going.append(asyncio.create_task(self._stop_one(child, until)))
                    await asyncio.wait(going[-1:], timeout=_HEAD_START)
            await asyncio.gather(*going)
        if self._zygote:
            self._zygote.close()
        await self._stop_strays(end)
        self._log.say("stopped")

    async def _stop_one(self, child: Child, until: float) -> None:
        if child.alive:
            self._log.detail(f"stopping {child.process.name}")
        await child.stop(min(child.process.grace, max(0.0, until - time.monotonic())))

    async def _stop_strays(self, end: float) -> None:
        """End inherited processes: mostly spiders whose Scrapyd was killed."""
        left = max(0.0, end - time.monotonic())
        for signum, patience in ((signal.SIGTERM, min(self._stray_grace, left)), (signal.SIGKILL, 1)):
            deadline = time.monotonic() + patience
            strays = _descendants()
            for stray in strays:
                self._log.say(f"ending {stray.pid}, left over by a process that died")
                with suppress(psutil.Error):
                    stray.send_signal(signum)
            while _descendants() and time.monotonic() < deadline:  # noqa: ASYNC110 - the kernel sets no event
                await asyncio.sleep(_LOOK)


def _descendants() -> list[psutil.Process]:
    living = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
    return living


def _obituary(child: Child) -> str:
    code = child.exit_code or 0
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"{child.process.name} {how}"
