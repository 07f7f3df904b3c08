"""A site that answers the start URL of a crawl at once, and other pages only when its gate is open."""

from __future__ import annotations

import threading

from sites.server import Reply, Site

#: Seconds after which the gate is not waited for any longer.
PATIENCE = 120.0


class GatedSite(Site):
    """Start URLs are paths that end with a slash. Requests from before the gate opens are logged when it opens."""

    def __init__(self) -> None:
        super().__init__()
        self._gate = threading.Event()
        #: Number of start URLs that were fetched since the gate was closed, and so of crawls under way.
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
