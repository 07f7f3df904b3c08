"""Which nodes get work: those that `SCRAPYD_URL` names, or all that register themselves."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from gateway.contract.outbox import is_held, read_file

_DEFAULT_PORTS = {"http": 80, "https": 443}


def _door(url: str) -> tuple[str, str, int | None, str]:
    """Scheme, host, port and path: `http://Node` and `http://node:80/` are one."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        # what a node says of itself need not be one
        return "", url, None, ""
    return parts.scheme, parts.hostname or "", port, parts.path.rstrip("/")


def read_node_url(text: str) -> str:
    """The URL as it was written. Raises `ValueError` that quotes what names no Scrapyd."""
    scheme, host, _, _ = _door(text)
    if scheme not in _DEFAULT_PORTS or not host:
        raise ValueError(f"{text!r} is not where a Scrapyd is: that looks like http://node1:6800")
    return text


class NodeList:
    """The URLs as they were written, and compared as they are meant. Without any, every node is on it."""

    def __init__(self, urls: Iterable[str] = ()) -> None:
        self.urls = tuple(urls)
        self._doors = frozenset(map(_door, self.urls))

    def has(self, url: str) -> bool:
        return not self._doors or _door(url) in self._doors

    def missing(self, registered: Iterable[str]) -> list[str]:
        """Those of the list that none of these is."""
        doors = frozenset(map(_door, registered))
        return [url for url in self.urls if _door(url) not in doors]


EVERY_NODE = NodeList()


# --- places for nodes in a folder that several share: replicas of one container, say, on one volume.
#
# `<NODES_DIR>/<NODE_NAME>-<n>/` is the `DISCOVERYBOT_HOME` of one node. Beside what a node keeps there:
#
# ============  =================================================================================================
# `place.lock`  `flock`ed by the node's Scrapyd for as long as it lives; who finds it free may take the place
# `place.json`  who has it, or had it last; written once the lock is held, read by whoever starts the place's tailer
# ============  =================================================================================================

PLACE = "place.json"
PLACE_LOCK = "place.lock"


class NodePlace(BaseModel):
    """What the node's tailer has to say of it, and cannot know by itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # spiders of other people can write here: what does not look like it would end whoever starts the tailers
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    url: str = Field(pattern=r"^https?://[!-~]+$")
    slots: int
    render_slots: int


def read_place(home: Path) -> NodePlace | None:
    """`None` where nobody has written it yet."""
    with suppress(OSError, ValueError):
        return NodePlace.model_validate_json(read_file(home / PLACE))
    return None


def is_taken(home: Path) -> bool:
    """Whether a Scrapyd lives there."""
    return is_held(home / PLACE_LOCK)
