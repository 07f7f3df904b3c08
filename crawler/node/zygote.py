"""The warm process that crawls are forked from: `python -m crawler.node.zygote <runner module>`.

It has imported the runner and, by the runner's `preload()`, all that a crawl will need; it has no reactor and one
thread, or it does not begin. Scrapyd is at the other end of the socket that is its stdin. For each request it forks
a child, which runs the runner's `main()`, and tells its process id and later how it ended. When the socket ends, so
does the zygote; its children run on.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from crawler.node.fork_channel import ForkChannel, ForkRequest
from crawler.node.forked_child import become
from gateway.crash_points import state_change
from gateway.process import NotForkableError, check_one_thread, importing_for_forks

#: `ru_maxrss` counts KiB on Linux and bytes on macOS.
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
#: What may be sent to a child before it has its own handlers for it.
_HELD_BACK = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}


class Zygote:
    def __init__(self, channel: ForkChannel, main: Callable[[], object]) -> None:
        self._channel = channel
        self._main = main
        #: Ids of requests, by process id.
        self._children: dict[int, int] = {}
        self._woken, self._wake = os.pipe()

    def serve(self) -> None:
        """Fork until the socket ends."""
        for fd in (self._woken, self._wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._channel.send(ready=os.getpid())
        while not self._channel.ended:
            readable, _, _ = select.select([self._channel.fileno(), self._woken], [], [])
            if self._woken in readable:
                os.read(self._woken, 4096)
                self._reap()
            if self._channel.fileno() in readable:
                for request in self._channel.receive():
                    self._fork(request)

    def _fork(self, request: ForkRequest) -> None:
        if self._channel.is_deserted():  # nobody would hold it to its limits
            request.close()
            return
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
        try:
            pid = self._divide(request)
        except OSError as error:
            self._channel.send(id=request.id, error=str(error))
        else:
            self._children[pid] = request.id
            self._channel.send(id=request.id, pid=pid)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)
            request.close()

    @state_change("node.fork")
    def _divide(self, request: ForkRequest) -> int:
        """The child's process id; it never returns in the child. Raises `OSError`."""
        pid = os.fork()
        if pid == 0:
            become(request, self._channel, self._main)
        return pid

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if not pid:
                    break
                cpu = usage.ru_utime + usage.ru_stime
                memory = usage.ru_maxrss * MAXRSS_UNIT
                if (request := self._children.pop(pid, None)) is not None:
                    self._channel.send(id=request, status=status, cpu=cpu, memory=memory)


def check_forkable() -> None:
    """Raises `NotForkableError`: a reactor's descriptors would be shared, another thread's locks never let go."""
    if "twisted.internet.reactor" in sys.modules:
        raise NotForkableError("a reactor was imported")
    check_one_thread()


def main() -> None:
    with importing_for_forks():
        runner = importlib.import_module(sys.argv[1])
        getattr(runner, "preload", lambda: None)()
    check_forkable()
    with suppress(BrokenPipeError, ConnectionResetError):  # Scrapyd is gone
        Zygote(ForkChannel(socket.socket(fileno=0)), runner.main).serve()
    os._exit(0)  # nothing of a child's is to be run here


if __name__ == "__main__":
    main()
