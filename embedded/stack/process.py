"""One row of the process table: what to run, what it waits for, and how one sees that it is ready."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from embedded.stack.probe import Probe, running


@dataclass(frozen=True)
class Process:
    """A process to keep alive."""

    name: str
    command: tuple[str, ...]
    #: Added to the supervisor's own environment.
    env: Mapping[str, str] = field(default_factory=dict)
    #: Names of the processes that must be ready before this one is started.
    needs: tuple[str, ...] = ()
    probe: Probe = running
    #: Seconds between SIGTERM and SIGKILL.
    grace: float = 10
    #: What the kernel sends it when the supervisor itself was killed. SIGTERM for those that have
    #: processes of their own to end; the others are built to be killed at any moment.
    death_signal: signal.Signals = signal.SIGKILL
    #: A store: it goes when all others are gone, who write to it up to their end.
    goes_last: bool = False
    #: Its command is `python -m …`, and may be forked from a process that has imported what it needs.
    forkable: bool = False
