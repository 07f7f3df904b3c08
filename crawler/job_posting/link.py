"""Where a posting's link leads."""

from __future__ import annotations

import re
from urllib.parse import urljoin

_NOWHERE = re.compile(r"#?$|(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def leads_nowhere(written: str) -> bool:
    """As `#` and `javascript:void(0)` do, which stand for what only scripts know."""
    return _NOWHERE.match(written.strip()) is not None


def web_url(base: str, written: str) -> str | None:
    """`written`, which may be relative to `base`; `None` of what leads nowhere, or cannot be part of a URL."""
    try:
        return None if leads_nowhere(written) else urljoin(base, written.strip())
    except ValueError:
        return None
