"""How nodes are identified: by the URL of their Scrapyd, and by their place in a folder that several nodes share."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from gateway.contract.outbox import is_held, read_file

_DEFAULT_PORTS = {"http": 80, "https": 443}


def door(url: str) -> tuple[str, str, int | None, str]:
    """The scheme, host, port and path of a URL, by which URLs are compared: `http://Node` equals
    `http://node:80/`.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        # a node can report any text as its URL
        return "", url, None, ""
    return parts.scheme, parts.hostname or "", port, parts.path.rstrip("/")


def read_node_url(text: str) -> str:
    """The URL as it was written. Raises `ValueError` that quotes a text that cannot be a Scrapyd's URL."""
    scheme, host, _, _ = door(text)
    if scheme not in _DEFAULT_PORTS or not host:
        raise ValueError(f"{text!r} is not the URL of a Scrapyd, such as http://node1:6800")
    return text


# --- places for nodes in a folder that several nodes share: replicas of one container on one volume, for example.
#
# `<NODES_DIR>/<NODE_NAME>-<n>/` is the `DISCOVERYBOT_HOME` of one node. Beside what a node keeps there:
#
# ============  =================================================================================================
# `place.lock`  `flock`ed by the node's Scrapyd for as long as it lives; a node that finds it free may take the place
# `place.json`  the node that has or had it; written once the lock is held, read by the process that starts its tailer
# ============  =================================================================================================

PLACE = "place.json"
PLACE_LOCK = "place.lock"


class NodePlace(BaseModel, extra="forbid", frozen=True):
    """The facts about a node that its tailer reports but cannot find out by itself."""

    # users' spiders can write to this file: a malformed value must not end the process that starts the tailers
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    url: str = Field(pattern=r"^https?://[!-~]+$")
    slots: int
    render_slots: int


def read_place(home: Path) -> NodePlace | None:
    """The node that has or had this place; `None` if the file is not written yet or is unreadable."""
    with suppress(OSError, ValueError):
        return NodePlace.model_validate_json(read_file(home / PLACE))
    return None


def is_taken(home: Path) -> bool:
    """Whether a living Scrapyd has the place."""
    return is_held(home / PLACE_LOCK)
