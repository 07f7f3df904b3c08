"""The conditions under which a project's requirements are to be met. They are comments in the requirements file,
because that has no other place for them. The sender of requirements writes them, and a node reads them.
"""

from __future__ import annotations

import re
from datetime import date
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

#: In an egg: the project's own modules that are not in it, each with its place beside scrapy.cfg or above it.
ELSEWHERE = "EGG-INFO/elsewhere.txt"

_COMMENT = re.compile(r"^#\s*(requires-python|python|exclude-newer|stack):\s*(\S.*?)\s*$", re.MULTILINE)
#: A stack of Scrapy Cloud: `scrapy:2.11-20241022`. A stack without a date changes over time.
_STACK = re.compile(r"scrapy:(?P<scrapy>\d+\.\d+)(?:-(?P<date>\d{8}))?\b.*")


class Conditions(NamedTuple):
    """Conditions that requirements name; each is empty if they do not name it."""

    #: A range of versions (PEP 440): on another Python they cannot be met.
    requires_python: str = ""
    #: The Python version that the project is developed with, such as `3.12`: used if the node has it.
    python: str = ""
    #: `YYYY-MM-DD`: releases that were uploaded later are not used.
    exclude_newer: str = ""
    #: A stack of Scrapy Cloud: its versions are used as far as the requirements can be met with them.
    stack: str = ""

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
    #: Its first two numbers.
    scrapy: str
    #: As `exclude_newer`.
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
#: When it was released.
_OLDEST_DAY = date(2023, 9, 18)
#: What a project gets that asks for an older version: the nearest that a node can run.
RAISED = "scrapy>=2.11,<2.12"
#: All versions as Scrapy numbers its releases; no release has a last number above 9.
_RELEASES = [f"2.{minor}.{patch}" for minor in range(OLDEST_SCRAPY.minor, 100) for patch in range(10)]
#: Operators that keep a later version out.
CHOOSE = frozenset({"==", "===", "~=", "<", "<="})


def is_too_old(wanted: Requirement) -> bool:
    """Whether it asks, on this system, for a Scrapy that is older than any that a node can run."""
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
    """The day, in ISO form, or the first one on which there was a Scrapy that a node can run. Empty for none."""
    return max(date.fromisoformat(day), _OLDEST_DAY).isoformat() if day else ""


def raised_words(wanted: Requirement) -> str:
    return (
        f"it asks for Scrapy {wanted.specifier}, which no node can run: it gets {OLDEST_SCRAPY}, the oldest that one "
        "can (see Scrapy's release notes for what has changed, and raise that requirement)"
    )
