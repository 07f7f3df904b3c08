"""No process outlives the supervisor: Linux signals children whose parent died, and hands orphans to us."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Loaded before any fork: a child between fork and exec must not import or open anything.
_prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None
#: Whether orphans below us can become our children.
CAN_ADOPT = _prctl is not None


def adopt_orphans() -> None:
    """Grandchildren whose parent dies (spiders of a killed Scrapyd) become our children, not init's. Linux only."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int, signum: signal.Signals) -> None:
    """For a new child: it gets `signum` when `parent` dies. Survives exec. Linux only."""
    if _prctl is None:
        return
    _prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)
