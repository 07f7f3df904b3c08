"""The setting with which a crawl skips pages that have recently given items, and the stat that counts these pages."""

from __future__ import annotations

import re

#: The setting: for how long a page that has given items is not fetched again.
SKIP_SEEN = "SKIP_SEEN"
#: The stat: how many requests were skipped. Only crawls with the setting have it.
SKIPPED_SEEN = "skip_seen/skipped"

_PERIOD = re.compile(r"([1-9]\d{0,5})([smhdw])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def read_period(text: object) -> int:
    """Seconds of `90s`, `30m`, `24h`, `7d` or `2w`. Raises `ValueError`."""
    found = _PERIOD.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError("must be a period such as '30m', '24h' or '7d'")
    return int(found[1]) * _SECONDS[found[2]]
