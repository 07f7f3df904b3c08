"""Fingerprints of errors: errors that are alike, such as those that differ only in the values in their messages, have
the same fingerprint and make one group.

A spider's process makes the groups (`crawler/report/error_groups.py`), and the platform adds them up across runs. So
both compute the fingerprints with this code.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal

from gateway.contract.outbox import whole_text

#: The kinds of groups, in this order: exceptions; log messages of the level ERROR or above without an exception;
#: responses with a status of 400 or above; requests without a response; crawls that failed without any other error.
GroupKind = Literal["exception", "log", "status", "download", "crawl"]
#: Kinds that are grouped by host only: the message does not matter.
BY_HOST: frozenset[GroupKind] = frozenset({"status", "download"})
#: One attempt has at most this many groups, and at most this many of the kinds `BY_HOST`: in a crawl of many sites,
#: they must leave room for the errors of the spider's code.
MOST_GROUPS, MOST_BY_HOST = 50, 25
#: Limits in characters: how much of a message is read, and how much is stored of a message without its values, of a
#: full message, of a class or a place, and of a URL.
LONGEST_READ = 2000
LONGEST_MESSAGE, LONGEST_EXAMPLE, LONGEST_NAME, LONGEST_URL = 300, 500, 200, 1000

#: The values in a message, which differ from error to error. Longer forms come first. The expression needs no
#: backtracking, so it is fast for any text of `LONGEST_READ` characters.
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
    """The text with its values replaced by `<number>`, `<text>`, `<url>`, `<uuid>`, `<hex>` and `<address>`: `no
    price on 'https://a.example/7'` becomes `no price on <text>`.
    """
    return readable(_VALUES.sub(lambda found: f"<{found.lastgroup}>", text[:LONGEST_READ]), LONGEST_MESSAGE)


def fingerprint(kind: GroupKind, name: str, place: str, message: str) -> str:
    """32 hexadecimal digits. `name`: the exception's class, the level or the status; `place`: the function or the
    host; `message`: the message without its values, which does not count for the kinds `BY_HOST`.
    """
    parts = (kind, name, place, "" if kind in BY_HOST else message)
    return sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


def group(kind: GroupKind, name: str, place: str, text: str, *, form: str = "", url: str = "") -> dict[str, Any]:
    """A group as it is in a report, without its `count` and its place in the log. `form`: the text of the message
    before values were put into it, if it is known.
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
