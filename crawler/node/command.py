"""A short-lived command whose output is wanted, without anybody waiting for it in Scrapyd's one thread."""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scrapyd.exceptions import RunnerError
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from crawler.node.family import kill_group
from crawler.node.loop import reactor

#: Seconds after which a command that imports a project is taken for hanging.
COMMAND_TIMEOUT = 60.0
#: Bytes kept of what it writes: a listing of ten thousand spiders, or the end of a traceback.
_MAX_OUTPUT = 8 << 20
_MAX_COMPLAINT = 64 << 10


class Command(ProcessProtocol):
    """`python -m <args>`; `result` is its stdout, or `RunnerError` with what it said instead."""

    def __init__(self) -> None:
        self.result: Deferred[bytes] = Deferred()
        self._out = bytearray()
        self._err = bytearray()
        self._killed: str | None = None

    @classmethod
    def start(cls, args: list[str], env: Mapping[str, str], folder: Path | None = None) -> Command:
        """In `folder`; by default, where Scrapyd was started."""
        command = cls()
        path = str(folder) if folder else None
        reactor.spawnProcess(command, sys.executable, [sys.executable, "-m", *args], env=env, path=path)
        return command

    def connectionMade(self) -> None:  # noqa: N802 - Twisted's name
        self._timer = reactor.callLater(
            COMMAND_TIMEOUT, self.kill, f"it took longer than {COMMAND_TIMEOUT:g} seconds"
        )

    def outReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._out += data
        if len(self._out) > _MAX_OUTPUT:
            self.kill("it says too much")

    def errReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._err += data
        del self._err[:-_MAX_COMPLAINT]

    def kill(self, why: str = "stopped") -> None:
        """End it, and what it has started if it leads a process group."""
        self._killed = self._killed or why
        pid: int | None = self.transport.pid  # type: ignore[union-attr]  # a process's transport, and there is one
        if pid is not None:
            kill_group(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processEnded(self, reason: Failure) -> None:  # noqa: N802 - Twisted's name
        if self._timer.active():
            self._timer.cancel()
        if reason.check(ProcessDone) and self._killed is None:
            self.result.callback(bytes(self._out))
        else:
            said: Any = self._killed or self._err.decode("utf-8", "replace").strip() or reason.getErrorMessage()
            self.result.errback(RunnerError(said))
