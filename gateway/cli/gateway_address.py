"""Where the gateway is: said on the command line, in the environment, or by the stack that runs here."""

from __future__ import annotations

import os
from pathlib import Path

from embedded.stack.state import StackState

DEFAULT_PORT = 8001


def home() -> Path:
    """The data folder. The rest of the settings may be wrong: the CLI talks to a gateway that has its own."""
    return Path(os.environ.get("DISCOVERYBOT_HOME") or ".discoverybot").absolute()


def gateway_url(given: str | None = None) -> str:
    """`--url`, else `DISCOVERYBOT_URL`, else the stack of the data folder, else `GATEWAY_PORT` here."""
    found = given or os.environ.get("DISCOVERYBOT_URL")
    if not found:
        stack = StackState.read(home())
        port = os.environ.get("GATEWAY_PORT") or DEFAULT_PORT
        found = stack.gateway_url if stack else f"http://127.0.0.1:{port}"
    return found.rstrip("/")
