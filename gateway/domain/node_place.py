"""Places for nodes in a folder that several share: replicas of one container, say, on one volume.

`<NODES_DIR>/<NODE_NAME>-<n>/` is the `DISCOVERYBOT_HOME` of one node. Beside what a node keeps there:

============  =================================================================================================
`place.lock`  `flock`ed by the node's Scrapyd for as long as it lives; who finds it free may take the place
`place.json`  who has it, or had it last; written once the lock is held, read by whoever starts the place's tailer
============  =================================================================================================
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from gateway.domain.node_files import is_held, read_file

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
