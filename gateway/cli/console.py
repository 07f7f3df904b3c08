"""Where the CLI writes: results to stdout, everything about them to stderr."""

from __future__ import annotations

import os
import sys

from rich.console import Console

#: Columns of what is piped somewhere: tables must not lose their right half to a terminal that is not there.
_PIPED = 200

out = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED)
err = Console(stderr=True, highlight=False)
