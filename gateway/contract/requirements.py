"""Conditions for the installation of a project's requirements. They are comments in the requirements file, because
the file has no other place for them. The command line writes the conditions, and a node reads them.
"""

from __future__ import annotations

import re
from datetime import date
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

#: A file in an egg: it lists modules of the project that are not in the egg, each with its path beside or above
#: scrapy.cfg.
ELSEWHERE = "EGG-INFO/elsewhere.txt"
#: In an egg: the day (ISO) on which the project was last changed, as its repository says.
CHANGED = "EGG-INFO/changed.txt"

_COMMENT = re.compile(
    r"^#\s*(requires-python|python|exclude-newer|stack|at-least|without):\s*(\S.*?)\s*$", re.MULTILINE
)
#: A stack of Scrapy Cloud: `scrapy:2.11-20241022`. A stack without a date changes over time.
_STACK = re.compile(r"scrapy:(?P<scrapy>\d+\.\d+)(?:-(?P<date>\d{8}))?\b.*")


class Conditions(NamedTuple):
    """The conditions in a requirements file; a condition that is not there is empty."""

    #: A range of Python versions (PEP 440) with which the requirements can be installed.
    requires_python: str = ""
    #: The Python version with which the project is developed, such as `3.12`: it is used if the node has it.
    python: str = ""
    #: `YYYY-MM-DD`: releases that were uploaded later are not used.
    exclude_newer: str = ""
    #: A stack of Scrapy Cloud: its versions are used as far as the requirements allow.
    stack: str = ""
    #: Packages, with spaces between them, of which later versions than the pinned ones are taken.
    at_least: str = ""
    #: Packages, with spaces between them, that are left out.
    without: str = ""

    @property
    def comments(self) -> list[str]:
        return [f"# {name.replace('_', '-')}: {value}" for name, value in self._asdict().items() if value]


def read_conditions(text: str) -> Conditions:
    """The conditions in `text`; the first of each name counts. Raises `ValueError` for a malformed date."""
    found = {name.replace("-", "_"): value for name, value in reversed(_COMMENT.findall(text))}
    said = Conditions(**found)
    if said.exclude_newer:
        date.fromisoformat(said.exclude_newer)
    return said


class Stack(NamedTuple):
    #: The first two numbers of Scrapy's version.
    scrapy: str
    #: The date of the stack, to be used as `exclude_newer`.
    date: str = ""


def read_stack(text: str) -> Stack | None:
    """The stack that `text` names; `None` for an image of another kind, or a malformed date."""
    if (match := _STACK.fullmatch(text)) is None:
        return None
    try:
        day = date.fromisoformat(match["date"]).isoformat() if match["date"] else ""
    except ValueError:
        return None
    return Stack(match["scrapy"], day)


# --- the Scrapy that is asked for

OLDEST_SCRAPY = Version("2.11")
#: The day on which this version was released.
_OLDEST_DAY = date(2023, 9, 18)
#: The requirement for a project that asks for an older version: the nearest version that a node can run.
RAISED = "scrapy>=2.11,<2.12"
#: All possible versions of Scrapy, whose last number is never above 9.
_RELEASES = [f"2.{minor}.{patch}" for minor in range(OLDEST_SCRAPY.minor, 100) for patch in range(10)]
#: Operators that exclude later versions.
CHOOSE = frozenset({"==", "===", "~=", "<", "<="})


def is_too_old(wanted: Requirement) -> bool:
    """Whether the requirement applies on this system and asks for a Scrapy that is too old for all nodes."""
    if canonicalize_name(wanted.name) != "scrapy" or (wanted.marker and not wanted.marker.evaluate()):
        return False
    limits = [_number(part.version) for part in wanted.specifier if part.operator in CHOOSE]
    return bool(limits) and max(limits) <= OLDEST_SCRAPY and not any(map(wanted.specifier.contains, _RELEASES))


def _number(text: str) -> Version:
    try:
        return Version(text.removesuffix(".*"))
    except InvalidVersion:  # after `===` anything may stand
        return OLDEST_SCRAPY


def raised_day(day: str) -> str:
    """The day in ISO format, but not before the release of the oldest Scrapy that a node can run. An empty day stays
    empty.
    """
    return max(date.fromisoformat(day), _OLDEST_DAY).isoformat() if day else ""


def raised_words(wanted: Requirement) -> str:
    return (
        f"it asks for Scrapy {wanted.specifier}, which no node can run: it gets {OLDEST_SCRAPY}, the oldest that one "
        "can (see Scrapy's release notes for what has changed, and raise that requirement)"
    )
