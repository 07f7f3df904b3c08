"""Errors as groups: what errors have in common that are one and the same, however often they occur.

A spider's process makes them (`crawler/report/error_groups.py`) and the platform adds them up across runs, so both
have to call the same error by the same fingerprint.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal

from gateway.contract.outbox import whole_text

#: What a group is of: exceptions; messages of the level ERROR or above without one; answers with a status of 400 or
#: above; requests without an answer; crawls that ended without a report of their own.
GroupKind = Literal["exception", "log", "status", "download", "crawl"]
#: Kinds of which there is one group for each host, whatever the message says.
BY_HOST: frozenset[GroupKind] = frozenset({"status", "download"})
#: Groups of one attempt, and how many of them may be `BY_HOST`: a crawl of many sites must not drive out what its own
#: code raises.
MOST_GROUPS, MOST_BY_HOST = 50, 25
#: Characters of a message that are looked at; and that are kept: of a message without its values, of a whole one, of
#: a class or a place, of a URL.
LONGEST_READ = 2000
LONGEST_MESSAGE, LONGEST_EXAMPLE, LONGEST_NAME, LONGEST_URL = 300, 500, 200, 1000

#: What is different in each error, the longer forms first. No part can be tried at more than a few places of a text
#: of `LONGEST_READ` characters, and none goes back.
_VALUES = re.compile(
    r"""(?P<url>(?<!\w)[A-Za-z][A-Za-z+]{1,19}://[^\s<>"']+)
    |(?P<uuid>(?<!\w)[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}(?!\w))
    |(?P<text>(?<!\w)'[^']*'|"[^"]*")
    |(?P<address>0x[0-9A-Fa-f]+)
    |(?P<hex>(?<!\w)(?=[A-Fa-f]{0,32}\d)[0-9A-Fa-f]{8,}(?!\w))
    |(?P<number>\d+(?:[-.,:/]\d+)*)""",
    re.VERBOSE,
)
_LOGIN = re.compile(r"(?<=://)[^/?#\s@]{1,500}@")
_SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]+")


def readable(text: str, longest: int) -> str:
    """The text in one line without control characters or the login of a URL, cut at `longest` characters."""
    line = _LOGIN.sub("", _SPACE.sub(" ", text[:LONGEST_READ]).strip())
    whole: str = whole_text(line if len(line) <= longest else f"{line[: longest - 1]}…")
    return whole


@lru_cache(maxsize=500)
def without_values(text: str) -> str:
    """The text with `<number>`, `<text>`, `<url>`, `<uuid>`, `<hex>` and `<address>` in the places of what is
    different in each error: `no price on 'https://a.example/7'` is `no price on <text>`.
    """
    return readable(_VALUES.sub(lambda found: f"<{found.lastgroup}>", text[:LONGEST_READ]), LONGEST_MESSAGE)


def fingerprint(kind: GroupKind, name: str, place: str, message: str) -> str:
    """32 hexadecimal digits. `name` is the exception's class, the level or the status; `place` the function, or the
    host; `message` has no values, and counts only where it says more than these.
    """
    parts = (kind, name, place, "" if kind in BY_HOST else message)
    return sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


def group(kind: GroupKind, name: str, place: str, text: str, *, form: str = "", url: str = "") -> dict[str, Any]:
    """A group as a report has it, without its `count` and where it is in the log. `form` is the text before values
    were put into it, if that is known.
    """
    name, place, message = readable(name, LONGEST_NAME), readable(place, LONGEST_NAME), without_values(form or text)
    return {
        "fingerprint": fingerprint(kind, name, place, message),
        "kind": kind,
        "name": name,
        "place": place,
        "message": message,
        "example": readable(text, LONGEST_EXAMPLE),
        "url": readable(url, LONGEST_URL),
    }


def title(kind: str, name: str, place: str, message: str) -> str:
    """The group in one line."""
    if kind == "status":
        return f"HTTP {name} from {place}"
    if kind == "download":
        return f"{place}: {message}"
    short = name.rpartition(".")[2]
    return message if kind == "log" and message else f"{short}: {message}" if message else short
