"""Time zones by their IANA names; which there are is the same on every machine, whatever it has installed."""

from __future__ import annotations

import functools
from datetime import UTC, tzinfo
from difflib import get_close_matches
from importlib.resources import files
from zoneinfo import ZoneInfo

from gateway.domain.errors import InvalidRequestError


@functools.cache
def zone_names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


def parse_time_zone(name: str) -> tzinfo:
    """Raises `InvalidRequestError("timezone")`, with the name that was meant where one is near."""
    if name == "UTC":
        return UTC
    if name in zone_names():
        return ZoneInfo(name)
    raise InvalidRequestError("timezone", f"there is no time zone {name[:80]!r}{_hint(name)}")


def _hint(name: str) -> str:
    """The name that was meant: with other capitals, misspelt, or a city alone."""
    wanted = name.strip().lower().replace(" ", "_")[:80]
    spelled = {known.lower(): known for known in sorted(zone_names())}
    cities = {known.rpartition("/")[2]: spelled[known] for known in reversed(spelled)}
    for names in (spelled, cities):
        if near := get_close_matches(wanted, names, n=1, cutoff=0.8):
            return f"; did you mean {names[near[0]]}?"
    return "; names are such as Europe/Paris or UTC"
