"""How many postings are still wanted, so that none is fetched beyond."""

from __future__ import annotations


class Quota:
    """`under_way` are postings whose pages have been asked for, and which may come to count."""

    def __init__(self, wanted: int | None) -> None:
        self._wanted = wanted
        self.told = 0
        self.under_way = 0

    @property
    def has_room(self) -> bool:
        return self._wanted is None or self.told + self.under_way < self._wanted

    @property
    def is_met(self) -> bool:
        return self._wanted is not None and self.told >= self._wanted
