"""Who links to what, for as long as it is not known whether it works."""

from __future__ import annotations

from typing import NamedTuple


class Mention(NamedTuple):
    """A link as it is written on a page; `page` is `None` for a start URL."""

    url: str
    page: str | None


class Breakage(NamedTuple):
    """Why a link does not work: the status it was answered with, or the error if there was no answer."""

    status: int | None = None
    error: str | None = None


class LinkLedger:
    """Keeps the mentions of pages that were asked for until they are answered, then only what is broken."""

    def __init__(self) -> None:
        self._awaited: dict[str, list[Mention]] = {}
        self._broken: dict[str, Breakage] = {}

    def expect(self, url: str) -> None:
        """`url` has been, or is about to be, asked for."""
        self._awaited.setdefault(url, [])

    def mention(self, url: str, mention: Mention) -> Breakage | None:
        """Note a link to `url`; what is wrong with it if that is known already."""
        if url in self._awaited:
            self._awaited[url].append(mention)
        return self._broken.get(url)

    def works(self, url: str) -> None:
        self._awaited.pop(url, None)

    def breaks(self, url: str, breakage: Breakage) -> list[Mention]:
        """Remember that `url` is broken; all the mentions so far."""
        self._broken[url] = breakage
        return self._awaited.pop(url, [])

    def is_broken(self, url: str) -> bool:
        return url in self._broken

    def same(self, url: str, target: str) -> None:
        """`url` leads to `target`, which is asked for anyway: they stand and fall together."""
        mentions = self._awaited.pop(url, [])
        if target in self._awaited:
            self._awaited[target].extend(mentions)
