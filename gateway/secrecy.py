"""Keeping what a process of a crawl node knows from the spiders beside it that run as the same user: the password of
Scrapyd, and those of the stores, which the tailer has.
"""

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
