"""Whether MongoDB takes writes, as PyMongo's own heartbeats find it: nobody need wait to be told that it does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pymongo import MongoClient
from pymongo.topology_description import TopologyDescription

#: Seconds between two heartbeats: so late the end of an outage is noticed, if nobody tries.
HEARTBEAT_SECONDS = 1.0
#: Seconds between two looks at what the heartbeats found.
LOOK_SECONDS = 0.25
#: Seconds without a server that takes writes before it counts as away. A connection that breaks, which counts as a
#: lost server until the heartbeat after, is sat out as ever; so is the quick election of another primary.
GRACE_SECONDS = 1.0


class Presence:
    """To be told to `look` every `LOOK_SECONDS`, by one task; any thread may ask whether it `is_away`."""

    def __init__(self, client: MongoClient[Any], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._monotonic = monotonic
        self._gone_since: float | None = None

    def look(self) -> None:
        if not is_gone(self._client.topology_description):
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = self._monotonic()

    @property
    def is_away(self) -> bool:
        """False again from the first heartbeat that is answered, though nobody has looked since."""
        since = self._gone_since
        if since is None or self._monotonic() - since < GRACE_SECONDS:
            return False
        return is_gone(self._client.topology_description)


def is_gone(found: TopologyDescription) -> bool:
    """Each server has been asked, and none takes writes: a replica set without a primary counts as gone, for all that
    we write and read goes to the primary.
    """
    if found.has_writable_server():
        return False
    return all(server.is_server_type_known or server.error for server in found.server_descriptions().values())
