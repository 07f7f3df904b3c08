"""Keeping Scrapyd's environment, which holds its password, from the spiders that run as the same user."""

from __future__ import annotations

import ctypes
import sys

#: `PR_SET_DUMPABLE` of Linux's prctl(2).
_SET_DUMPABLE = 4


def hide_process() -> None:
    """Let no other process of this user read `/proc/<this process>/environ` or its memory, where Linux can.

    It costs core dumps. What this process executes is as open as ever; root reads everything anyway.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
