"""What a forked process does to become a crawl's own, as if it had been started for it."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from typing import NoReturn

from crawler.node.fork_channel import ForkChannel, ForkRequest
from crawler.node.started_mark import note_own_pid
from gateway.process import close_all_but, redirect, restore_signals, run_and_end


def become(request: ForkRequest, channel: ForkChannel, main: Callable[[], object]) -> NoReturn:
    """Run `main` as the request says, and end."""

    def run() -> None:
        # first of all, and before the zygote's socket is let go: whoever sees that end knows by the mark whether
        # there was a fork
        note_own_pid(request.mark_fd)
        _detach(request, channel)
        main()

    run_and_end(run)


def _detach(request: ForkRequest, channel: ForkChannel) -> None:
    """A session, descriptors, an environment and signals of its own."""
    os.setsid()
    channel.forget()
    redirect(request.output_fd)
    close_all_but(request.mark_fd)
    os.environ.clear()
    os.environ.update(request.env, DISCOVERYBOT_MARK_FD=str(request.mark_fd))
    sys.argv = request.argv
    random.seed()
    restore_signals()
