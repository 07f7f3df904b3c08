"""One zygote as Scrapyd sees it: its process, its socket, and the crawls it was asked to fork."""

# mypy: allow-untyped-calls, disable-error-code="misc"
# Twisted is typed in parts only, and its protocols not at all.
from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from twisted.internet.base import DelayedCall
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import Factory, ProcessProtocol, connectionDone
from twisted.logger import Logger
from twisted.protocols.basic import Int32StringReceiver
from twisted.python.failure import Failure

from crawler.node.accounts import Account
from crawler.node.fork_channel import MAX_FRAME
from crawler.node.forked_process import ForkedProcess
from crawler.node.loop import reactor
from crawler.node.spawn import SpawnedProcess, Usage, watch
from gateway.contract.outbox import open_file

log = Logger()

#: Seconds that a zygote has for its imports.
WARM_UP = 60.0
#: Seconds between two questions whether it is still there; each has to be answered before the next.
PULSE = 10.0


class ZygoteOwner(Protocol):
    """Who is told."""

    def zygote_ready(self, zygote: ZygoteProcess) -> None:
        """It has imported everything."""

    def zygote_forked(self, zygote: ZygoteProcess) -> None:
        """It has forked once more."""

    def zygote_ended(self, zygote: ZygoteProcess) -> None:
        """It is gone; what it had forked is watched by other means."""


class ZygoteProcess(Int32StringReceiver):
    transport: Any
    MAX_LENGTH = MAX_FRAME

    def __init__(self, owner: ZygoteOwner, process: SpawnedProcess) -> None:
        self.forks = 0
        self.ready = False
        self._owner = owner
        self._process = process
        self._retired = False
        self._asked: dict[int, tuple[ForkedProcess, int]] = {}
        self._running: dict[int, ForkedProcess] = {}
        self._heard = True
        self._pulse: DelayedCall = reactor.callLater(WARM_UP, self.kill)

    @classmethod
    def launch(cls, owner: ZygoteOwner, runner: str, env: Mapping[str, str], account: Account) -> ZygoteProcess:
        """Start one. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)  # noqa: FBT003 - takes no keyword
            command = [sys.executable, "-m", "crawler.node.zygote", runner]
            # it says what there is to say where Scrapyd does
            pid = account.start(command, env, {0: theirs.fileno(), 1: 2, 2: 2})
            # in its group are, for a moment, what it has just forked
            zygote = cls(owner, watch(pid, ProcessProtocol(), account, ends_group=False))
            factory = Factory.forProtocol(lambda: zygote)
            factory.noisy = False
            reactor.adoptStreamConnection(ours.fileno(), socket.AF_UNIX, factory)
        return zygote

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, process: ForkedProcess) -> None:
        """Ask for a fork. Raises `OSError` if its log cannot be opened."""
        start = process.start
        output = open_file(start.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.forks += 1
        self._asked[self.forks] = process, output
        request = {"id": self.forks, "argv": start.args[2:], "env": dict(start.env)}
        for fd in (output, start.mark.fd):
            self.transport.sendFileDescriptor(fd)
        self.sendString(json.dumps(request).encode())

    def retire(self) -> None:
        """End once the last of its crawls has."""
        self._retired = True
        self._leave()

    def kill(self) -> None:
        """Its socket ends with it. Nothing else may end that: while it lives, it may be about to fork."""
        log.error("zygote {pid} does not answer", pid=self.pid)
        with suppress(ProcessExitedAlready, ProcessLookupError):
            self._process.signalProcess(signal.SIGKILL)

    def lengthLimitExceeded(self, _length: int) -> None:  # noqa: N802 - Twisted's name
        self.kill()

    def stringReceived(self, string: bytes) -> None:  # noqa: N802 - Twisted's name
        try:
            self._received(json.loads(string))
        except Exception:  # noqa: BLE001 - whatever it has sent, it must not cost the connection
            log.failure("zygote {pid} says what makes no sense", pid=self.pid)

    def connectionLost(self, _reason: Failure = connectionDone) -> None:  # noqa: N802 - Twisted's name
        if self._pulse.active():
            self._pulse.cancel()
        self._owner.zygote_ended(self)
        for process, output in self._asked.values():
            os.close(output)
            process.lose_zygote()
        for process in self._running.values():
            process.lose_zygote()

    def _received(self, message: dict[str, Any]) -> None:
        self._heard = True
        if message.get("pong"):
            return
        if message.get("ready"):
            self.ready = True
            self._pulse.cancel()
            self._ask()
            self._owner.zygote_ready(self)
        elif "pid" in message:
            process = self._running[message["id"]] = self._answered(message["id"])
            process.forked(message["pid"])
            self._owner.zygote_forked(self)
        elif "error" in message:
            self._answered(message["id"]).start_plainly()
        else:
            usage = Usage(message["cpu"], message["memory"])
            self._running.pop(message["id"]).exited(message["status"], usage)
        self._leave()

    def _answered(self, number: int) -> ForkedProcess:
        process, output = self._asked.pop(number)
        os.close(output)
        return process

    def _ask(self) -> None:
        """Whoever does not answer will not tell how its crawls end, either."""
        if not self._heard:
            self.kill()
            return
        self._heard = False
        self.sendString(b'{"ping": true}')
        self._pulse = reactor.callLater(PULSE, self._ask)

    def _leave(self) -> None:
        if self._retired and not self._asked and not self._running:
            self.transport.loseConnection()
