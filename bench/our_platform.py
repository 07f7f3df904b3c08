"""Makes the tests' own site and stack available to benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
from sites.server import Reply, Site, html, links  # noqa: E402 - only now can it be found
from stack import Stack, running_stack, wait_until  # noqa: E402 - only now can it be found
from stores import embedded_mongo, free_port, valkey_server  # noqa: E402 - only now can it be found

__all__ = [
    "ROOT",
    "Reply",
    "Site",
    "Stack",
    "embedded_mongo",
    "free_port",
    "html",
    "links",
    "running_stack",
    "valkey_server",
    "wait_until",
]
