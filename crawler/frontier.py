"""Which pages are still to be fetched, nearest first."""

from __future__ import annotations

from collections.abc import Iterator


class Frontier:
    """The pages of a crawl by URL (see `page_url`), each asked for once.

    With a limit of depth it goes level by level. Otherwise a page that was found by a detour, because the page
    with the shorter way to it was still on its way, would count as deeper than it is, and what lies behind it
    would be missed: with eight requests in flight that is no rare case.
    """

    def __init__(self, depth_limit: int | None = None) -> None:
        self._depth_limit = depth_limit
        self._asked: set[str] = set()
        self._next_level: dict[str, int] = {}

    def ask(self, url: str) -> bool:
        """Whether `url` should be fetched now; it then counts as asked for."""
        if url in self._asked:
            return False
        self._asked.add(url)
        # a redirect may lead to what the next level would have fetched
        self._next_level.pop(url, None)
        return True

    def admits(self, url: str, depth: int) -> bool:
        """Whether `url`, at `depth`, is within the limit and new."""
        within = self._depth_limit is None or depth <= self._depth_limit
        return within and url not in self._asked and url not in self._next_level

    def hold(self, url: str, depth: int) -> None:
        """Keep `url` for the next level."""
        self._next_level[url] = depth

    @property
    def by_level(self) -> bool:
        return self._depth_limit is not None

    def next_level(self) -> Iterator[tuple[str, int]]:
        """URL and depth of all that was held; nothing more is held by then."""
        level, self._next_level = self._next_level, {}
        yield from ((url, depth) for url, depth in level.items() if self.ask(url))
