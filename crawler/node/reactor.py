"""Twisted's reactor with a type for mypy, which misreads its zope interface."""

from __future__ import annotations

import time
from typing import Any

from twisted.internet import reactor as _reactor

reactor: Any = _reactor

# Twisted's timers follow the wall clock. If that were set forward by an hour, all crawls would reach their time
# limit; if it were set back, timers would be an hour late. So they follow the monotonic clock, moved to count from
# the epoch, because the seconds are logged.
_AHEAD = time.time() - time.monotonic()
reactor.seconds = lambda: _AHEAD + time.monotonic()
