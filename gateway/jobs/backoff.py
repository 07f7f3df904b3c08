"""How long a failed attempt or dispatch waits before the next one."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

#: Seconds before the first retry; doubled for each further retry.
BACKOFF_BASE = 2.0
BACKOFF_MAX = 300.0


def backoff(failures: int, jitter: Callable[[], float] = random.random) -> timedelta:
    """Delay before the next try after the n-th failure: 2ⁿ seconds, spread over 50–100 % so that many jobs
    that failed together do not come back together.
    """
    seconds = min(BACKOFF_MAX, BACKOFF_BASE ** min(failures, 16))
    return timedelta(seconds=seconds * (0.5 + jitter() / 2))
