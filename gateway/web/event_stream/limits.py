"""How much a stream may hold, and how long it may wait."""

from __future__ import annotations

from typing import NamedTuple


class StreamLimits(NamedTuple):
    #: The live end of each watched job's log that this process keeps: whichever is reached first.
    ring_entries: int = 4096
    ring_bytes: int = 4 << 20
    #: Pages of history that this process keeps, because many clients come back at once.
    cache_bytes: int = 32 << 20
    #: Seconds between two chunks to the same client: what arrives meanwhile travels together.
    tick: float = 0.02
    #: Seconds for which a client may leave a chunk unread before it is dropped.
    send_timeout: float = 20
    #: Seconds between two comments that keep proxies from closing a quiet connection.
    ping: float = 15
    #: Seconds between two looks into the stores while live lines cannot be trusted to arrive,
    poll: float = 1
    #: and while they can.
    refresh: float = 4
    #: Seconds for which missing lines of an attempt are waited for before a `gap` is declared.
    gap_patience: float = 3
    #: Threads for reading logs, apart from those that take orders.
    threads: int = 4
    #: Seconds given to clients to be told goodbye; less than the server's own graceful shutdown.
    farewell: float = 3
