"""One process of the stack as it lives: started, watched, asked to go, killed with all of its group."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

from embedded.stack.parent_death import die_with_parent
from embedded.stack.process import Process
from embedded.stack.stack_log import StackLog
from embedded.stack.zygote import Zygote

#: Lines of its output that are kept to show when it dies.
TAIL = 15
#: Seconds that its output may take to drain once it is dead.
_DRAIN = 0.5
#: Exit code of a command that could not be started, as the shell has it.
NOT_STARTED = 127


class Child:
    """The present incarnation of a `Process`. It leads a session of its own: a Ctrl-C meant for us does
    not reach it, and what it forked can be killed as a group.
    """

    def __init__(self, process: Process, cwd: Path, log: StackLog, zygote: Zygote | None = None) -> None:
        self.process = process
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.ended = asyncio.Event()
        self.exit_code: int | None = None
        self._started = time.monotonic()
        self._log = log
        self._popen: subprocess.Popen[bytes] | None = None
        reads, writes = os.pipe()
        with os.fdopen(writes, "wb") as output:
            forked = zygote.fork(process, cwd, output.fileno()) if zygote else None
            self.pid = forked or self._spawn(cwd, output)
        if self.pid is None:
            self.end(NOT_STARTED)
        self._output = asyncio.create_task(self._copy_output(os.fdopen(reads, "rb")))

    def _spawn(self, cwd: Path, output: IO[bytes]) -> int | None:
        try:
            self._popen = subprocess.Popen(  # noqa: S603 - the commands are ours
                self.process.command,
                cwd=cwd,
                env={**os.environ, **self.process.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid(), self.process.death_signal),  # noqa: PLW1509 - the supervisor has one thread
            )
        except OSError as error:
            self.tail.append(f"{self.process.command[0]}: {error.strerror}")
            return None
        return self._popen.pid

    @property
    def alive(self) -> bool:
        return not self.ended.is_set()

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._started

    def end(self, exit_code: int) -> None:
        """It has been reaped. What is left of its group goes too, before it holds a port that a successor wants."""
        self.exit_code = exit_code
        self.signal(signal.SIGKILL)
        if self._popen is not None:
            self._popen.returncode = exit_code  # else it would wait for a process that the supervisor has reaped
        self.ended.set()

    def signal(self, signum: signal.Signals) -> None:
        """To the whole group; nothing, when nobody is left."""
        if self.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signum)

    async def stop(self, grace: float) -> None:
        """SIGTERM, then SIGKILL after so many seconds. Returns when it is gone and its last words are written."""
        if self.alive:
            self.signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self.ended.wait(), grace)
            except TimeoutError:
                self._log.say(f"{self.process.name} did not stop in {grace:.3g} s: killing it")
                self.signal(signal.SIGKILL)
                await self.ended.wait()
        await self.drain()

    async def drain(self) -> None:
        """Wait until its last words are in the log; briefly, for an orphan may still hold the pipe."""
        with suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(self._output, _DRAIN)

    async def _copy_output(self, output: IO[bytes]) -> None:
        """Line by line into the log, however long the lines are and whatever bytes they hold."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), output)
        torn = b""
        try:
            while data := await reader.read(1 << 16):
                *lines, torn = (torn + data).split(b"\n")
                for line in lines:
                    self._take(line)
        finally:
            transport.close()
        if torn:
            self._take(torn)

    def _take(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        self.tail.append(text)
        self._log.line(self.process.name, text)
