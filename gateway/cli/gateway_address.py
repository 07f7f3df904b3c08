"""Where the gateway is: said on the command line, in the environment, or by the stack that runs here."""

from __future__ import annotations

import os
from pathlib import Path

from embedded.stack.state import StackState

DEFAULT = "http://127.0.0.1:8001"


def home() -> Path:
    """The data folder. The rest of the settings may be wrong: the CLI talks to a gateway that has its own."""
    return Path(os.environ.get("DISCOVERYBOT_HOME") or ".discoverybot").absolute()


def gateway_url(given: str | None = None) -> str:
    """`--url`, else `DISCOVERYBOT_URL`, else that of the stack in the data folder, else the default port."""
    stack = StackState.read(home())
    found = given or os.environ.get("DISCOVERYBOT_URL") or (stack.gateway_url if stack else DEFAULT)
    return found.rstrip("/")
