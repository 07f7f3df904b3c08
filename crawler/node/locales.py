"""Locales that this machine could have and has not made, for projects that read and write dates in another language
(`locale.setlocale(locale.LC_TIME, "ro_RO.UTF-8")`).

Debian and others come with the sources of all locales, and make only those that the administrator has chosen. Anybody
can make another one in a folder. This takes a second or so, once in each process that asks for one.
"""

from __future__ import annotations

import locale as known
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

#: A language and its place, in UTF-8, which may be left out; and a variant.
_NAME = re.compile(r"([a-z]{2,3}_[A-Z]{2})(?:\.(?:UTF|utf)-?8)?(@[a-z]+)?")
#: Maximum number of seconds.
_LONGEST = 30


def make_missing() -> None:
    """Let this process set locales that the machine has not made."""
    theirs = known.setlocale

    @wraps(theirs)
    def setlocale(category: int, locale: Any = None) -> str:
        try:
            return theirs(category, locale)
        except known.Error:
            locale = locale if isinstance(locale, str) else ".".join(filter(None, locale))
            if (folder := _folder_with(locale)) is None:
                raise
        with _path_of_locales(folder):
            return theirs(category, locale)

    known.setlocale = setlocale


@cache
def _folder_with(name: str) -> Path | None:
    """The folder in which the locale was made; `None` if that is not possible here."""
    if (parts := _NAME.fullmatch(name)) is None:
        return None
    folder = Path(_kept().name)
    command = ["localedef", "-i", f"{parts[1]}{parts[2] or ''}", "-f", "UTF-8", str(folder / name)]
    # there may be no `localedef`, or not the sources; and it says by its code whether it has warned
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LONGEST, check=False)  # noqa: S603 - our command
    return folder if (folder / name).is_dir() else None


@cache
def _kept() -> TemporaryDirectory[str]:
    """Is there until the process ends: the C library reads a locale when it is set."""
    return TemporaryDirectory(prefix="locales-")


@contextmanager
def _path_of_locales(folder: Path) -> Iterator[None]:
    """Where the C library looks for locales. It is left as it was: with this it would find none of the machine's."""
    before = os.environ.get("LOCPATH")
    os.environ["LOCPATH"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("LOCPATH")
        if before is not None:
            os.environ["LOCPATH"] = before
