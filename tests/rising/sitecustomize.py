"""With this folder on PYTHONPATH, a process of the platform that kills itself rises again at once.

Each that is started imports what it will need, and runs on in a fork of itself; when that is killed, in the next one.
So a hundred deaths cost a hundred forks, not a hundred times the seconds that the imports take. Whoever kills the
process that is known to the supervisor gets a new one from there, as ever.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path

#: By what follows `-m`: modules that leave no thread, connection or application behind.
IMPORTED = {
    "celery": (
        *("celery.bin.celery", "celery.apps.worker", "celery.apps.beat"),
        *("gateway.worker.app", "gateway.worker.beat", "gateway.worker.consumer"),
    ),
    "gateway.tailer": ("gateway.tailer.wiring",),
    "gateway.web": ("gateway.web.app", "uvloop", "uvicorn.protocols.http.httptools_impl"),
}


def rise_again_and_again() -> None:
    """Returns in each fork. In the process that was started it waits, and ends as the last one of them did."""
    # the supervisor tells the whole group
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while (pid := os.fork()) != 0:
        ended = os.waitpid(pid, 0)[1]
        if not (os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL):
            os._exit(os.waitstatus_to_exitcode(ended) % 256)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def what_is_run() -> str | None:
    """What follows `-m`."""
    told = sys.orig_argv
    return told[told.index("-m") + 1] if "-m" in told else None


if (names := IMPORTED.get(what_is_run() or "")) is not None:
    # the folder that `-m` will look into
    sys.path.insert(0, str(Path.cwd()))
    for name in names:
        importlib.import_module(name)
    sys.path.pop(0)
    rise_again_and_again()
