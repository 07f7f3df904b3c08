"""Ensures that no process outlives the supervisor: Linux signals children when their parent dies, and makes orphans
children of the supervisor.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# loaded before any fork, because a child between fork and exec must not import or open anything
_prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None
#: Whether orphaned descendants can become our children.
CAN_ADOPT = _prctl is not None


def adopt_orphans() -> None:
    """From now on, grandchildren whose parent dies (spiders of a killed Scrapyd) become our children. Linux only."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int, signum: signal.Signals) -> None:
    """To be called in a new child: the kernel sends it `signum` when `parent` dies, also after exec. Linux only."""
    if _prctl is None:
        return
    _prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)
