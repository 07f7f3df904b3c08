"""Projects by name. Ours is `DiscoveryBot` to the world and `default` to Scrapy; no name is told apart by case."""

from __future__ import annotations

import re
from collections.abc import Collection

#: The project of the working directory's scrapy.cfg, which has no egg.
OWN_PROJECT = "default"
_OWN_NAMES = frozenset({OWN_PROJECT, "discoverybot"})
#: A name becomes that of folders and files: nothing hidden, nothing with a slash.
_PROJECT_NAME = re.compile(r"\w(?:[\w .-]{0,98}[\w-])?")


def canonical(name: str, known: Collection[str] = ()) -> str:
    """The name under which Scrapyd keeps the project that `name` means; `name` itself for one it does not know.

    An exact match wins, so two projects that differ in case only can both be reached.
    """
    if name.lower() in _OWN_NAMES:
        return OWN_PROJECT
    if name in known:
        return name
    return next((other for other in sorted(known) if other.lower() == name.lower()), name)


def is_project_name(name: str) -> bool:
    return _PROJECT_NAME.fullmatch(name) is not None
