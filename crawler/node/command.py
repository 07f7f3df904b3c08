"""A short-lived command whose output is wanted, without anybody waiting for it in Scrapyd's one thread."""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from scrapyd.exceptions import RunnerError
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from crawler.node.loop import reactor

#: Seconds after which a command that imports a project is taken for hanging.
COMMAND_TIMEOUT = 60.0


class Command(ProcessProtocol):
    """`python -m <args>`; `result` is its stdout, or `RunnerError` with what it said instead."""

    def __init__(self) -> None:
        self.result: Deferred[bytes] = Deferred()
        self._out = bytearray()
        self._err = bytearray()

    @classmethod
    def start(cls, args: list[str], env: Mapping[str, str]) -> Command:
        command = cls()
        reactor.spawnProcess(command, sys.executable, [sys.executable, "-m", *args], env=env)
        return command

    def connectionMade(self) -> None:  # noqa: N802 - Twisted's name
        self._timer = reactor.callLater(COMMAND_TIMEOUT, self.kill)

    def outReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._out += data

    def errReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._err += data

    def kill(self) -> None:
        transport: Any = self.transport
        with suppress(ProcessExitedAlready):
            transport.signalProcess("KILL")

    def processEnded(self, reason: Failure) -> None:  # noqa: N802 - Twisted's name
        if self._timer.active():
            self._timer.cancel()
        if reason.check(ProcessDone):
            self.result.callback(bytes(self._out))
        else:
            said = (self._err or self._out).decode("utf-8", "replace")
            self.result.errback(RunnerError(said or reason.getErrorMessage()))
