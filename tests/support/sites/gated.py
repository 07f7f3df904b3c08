"""A site that answers the start of a crawl at once, and the rest of it when its gate is open."""

from __future__ import annotations

import threading

from sites.server import Reply, Site

#: Seconds after which nobody opens the gate any more.
PATIENCE = 120.0


class GatedSite(Site):
    """Starts are paths that end with a slash. What was asked for before the gate is open is logged when it opens."""

    def __init__(self) -> None:
        super().__init__()
        self._gate = threading.Event()
        #: Starts that were fetched since the gate was closed: so many crawls are under way.
        self.under_way = 0

    def reply(self, path: str) -> Reply:
        if path not in self.pages:
            return super().reply(path)
        if path.endswith("/"):
            with self._lock:
                self.under_way += 1
        else:
            self._gate.wait(PATIENCE)
        return super().reply(path)

    def open(self) -> None:
        self._gate.set()

    def shut(self) -> None:
        self._gate.clear()
        self.under_way = 0

    def close(self) -> None:
        self.open()
        super().close()
