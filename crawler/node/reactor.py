"""Twisted's reactor. For mypy: it is declared as a zope interface, whose methods mypy takes for functions."""

from __future__ import annotations

import time
from typing import Any

from twisted.internet import reactor as _reactor

reactor: Any = _reactor

# Twisted's timers go by the wall clock. If that were put forward by an hour, all crawls would reach their time limit;
# if it were put back, timers would wait for an hour more. The seconds still count from the epoch: they are logged.
_AHEAD = time.time() - time.monotonic()
reactor.seconds = lambda: _AHEAD + time.monotonic()
