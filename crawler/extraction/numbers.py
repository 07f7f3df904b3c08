"""Numbers as people write them: `1.234,56 €`, `1,234.56`, `12 345`, `-5 %`."""

from __future__ import annotations

import re
import sys

_SIGNS = {"-": -1, "\N{MINUS SIGN}": -1}
#: Groups digits whatever the language; `.` and `,` may group or divide.
_SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}'\N{RIGHT SINGLE QUOTATION MARK}"
_NUMBER = re.compile(rf"(?P<sign>(?<!\w)[-+\N{{MINUS SIGN}}])?[$€£¥₹]?(?P<body>[.,]?\d+(?:[.,{_SPACES}]\d+)*)")
_GROUPED_BY_SPACE = re.compile(rf"\d{{1,3}}(?:[{_SPACES}]\d{{3}}(?!\d))+(?:[.,]\d+)?|[^{_SPACES}]+")
_SPACE = re.compile(f"[{_SPACES}]")
_GROUP = 3
#: Beyond it an integer does not fit into 64 bits everywhere.
_MAX_DIGITS = 18
#: Digits beyond which it would be infinite.
_LARGEST_EXPONENT = sys.float_info.max_10_exp
#: Languages that write 1.5 as `1,5`, by the first part of their tag.
_COMMA_LANGUAGES = frozenset(
    {
        *("af", "az", "be", "bg", "bs", "ca", "cs", "da", "de", "el", "es", "et", "eu", "fi", "fr", "gl", "hr", "hu"),
        *("hy", "id", "is", "it", "ka", "kk", "lt", "lv", "mk", "nb", "nl", "nn", "no", "pl", "pt", "ro", "ru", "sk"),
        *("sl", "sq", "sr", "sv", "tr", "uk", "uz", "vi"),
    }
)
#: Where they do not.
_POINT_REGIONS = frozenset({"de-ch", "de-li", "it-ch", "es-mx", "es-us", "es-gt", "es-hn", "es-pa", "es-pe", "es-pr"})


def decimal_mark(language: str | None) -> str:
    """What stands before the fraction in a language (a tag such as `de-AT`)."""
    tag = (language or "").lower().replace("_", "-")
    return "," if tag.partition("-")[0] in _COMMA_LANGUAGES and tag not in _POINT_REGIONS else "."


def number_in(text: str, *, mark: str | None = None, usual_mark: str = ".", whole: bool = False) -> int | float:
    """The first number in `text`. Raises `ValueError` if there is none, or none that makes sense.

    `mark` is what stands before the fraction, for sure. Without it the number itself tells; where it could be read
    both ways (`1.234`), `usual_mark` decides, and a `whole` number has no fraction.
    """
    match = _NUMBER.search(text)
    if not match:
        raise ValueError("there is no number in it")
    body = _SPACE.sub("", _first_number(match["body"]))
    mark = mark or _mark_of(body, usual_mark, whole=whole)
    digits, _, fraction = body.partition(mark) if mark else (body, "", "")
    number = _ungrouped(digits, fraction)
    if len(number) > _LARGEST_EXPONENT:
        raise ValueError("it is too large for a number")
    if whole and fraction.strip("0"):
        raise ValueError("it is not a whole number")
    sign = _SIGNS.get(match["sign"] or "", 1)
    if fraction and not whole:
        return sign * float(f"{number}.{fraction}")
    return sign * (int(number) if len(number) <= _MAX_DIGITS else float(number))


def _first_number(body: str) -> str:
    """`body` up to where a space does not group digits but begins another number."""
    match = _GROUPED_BY_SPACE.match(body)
    return match[0] if match else body


def _mark_of(body: str, usual_mark: str, *, whole: bool) -> str | None:
    marks = [char for char in body if char in ".,"]
    if not marks:
        return None
    last = marks[-1]
    if len(set(marks)) > 1:
        return last
    if len(marks) > 1:
        return None
    before, _, after = body.partition(last)
    could_group = len(after) == _GROUP and 0 < len(before) <= _GROUP and before != "0"
    if not could_group:
        return last
    return last if last == usual_mark and not whole else None


def _ungrouped(digits: str, fraction: str) -> str:
    if not fraction.isdigit() and fraction:
        raise ValueError("it has more than one decimal mark")
    first, *groups = re.split("[.,]", digits)
    # the last group has three digits everywhere, those before it two in India
    if groups and (len(groups[-1]) != _GROUP or not all(len(group) in {2, 3} for group in groups)):
        raise ValueError("its digits are not grouped as those of a number")
    return first + "".join(groups) or "0"
