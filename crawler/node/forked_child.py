"""What a forked process does to become a crawl's own, as if it had been started for it."""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from crawler.node.fork_channel import ForkChannel, ForkRequest
from crawler.node.started_mark import note_own_pid

#: As Python has them at its start.
_HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGCHLD: signal.SIG_DFL,
}


def become(request: ForkRequest, channel: ForkChannel, main: Callable[[], object]) -> NoReturn:
    """Run `main` as the request says, and end."""
    code = 1
    try:
        # first of all, and before the zygote's socket is let go: whoever sees that end knows by the mark whether
        # there was a fork
        note_own_pid(request.mark_fd)
        _detach(request, channel)
        code = _exit_code(main)
    except BaseException:  # noqa: BLE001 - nothing may go up into the zygote's own code
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def _detach(request: ForkRequest, channel: ForkChannel) -> None:
    """A session, signals, descriptors and an environment of its own."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number, handler in _HANDLERS.items():
        signal.signal(number, handler)
    channel.forget()
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (request.output_fd, 1), (request.output_fd, 2)):
        os.dup2(source, target)
    _close_all_but(request.mark_fd)
    os.environ.clear()
    os.environ.update(request.env, DISCOVERYBOT_MARK_FD=str(request.mark_fd))
    sys.argv = request.argv
    random.seed()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _close_all_but(kept: int) -> None:
    highest = max(int(name) for name in os.listdir("/dev/fd"))  # noqa: PTH208 - Path.iterdir would open another one
    os.closerange(3, kept)
    os.closerange(kept + 1, highest + 1)


def _exit_code(main: Callable[[], object]) -> int:
    """As the interpreter's own, at the end of a program."""
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    return 0


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # a full disk, or closed
            continue
