from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

SOURCE = Path("/usr/share/i18n/locales/ro_RO")


def said_by(code: str) -> str:
    """What a process prints that makes missing locales. It is one of its own: a locale is of a whole process."""
    code = f"import locale, os, time\nfrom crawler.node import locales\nlocales.make_missing()\n{dedent(code)}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.skipif(
    shutil.which("localedef") is None or not SOURCE.exists(), reason="the sources of locales are not installed"
)
def test_a_locale_that_the_machine_has_not_made_is_made_when_it_is_asked_for() -> None:
    said = said_by("""
        for name in ("ro_RO.UTF-8", "C", ("ro_RO", "UTF-8")):
            print(locale.setlocale(locale.LC_TIME, name), time.strftime("%B", time.gmtime(0)))
        print(os.environ.get("LOCPATH"))
    """)
    assert said == "ro_RO.UTF-8 ianuarie\nC January\nro_RO.UTF-8 ianuarie\nNone\n"


@pytest.mark.parametrize("name", ["xx_XX.UTF-8", "Romanian", "../ro_RO.UTF-8", "ro_RO.UTF-8/../x", ("xx_XX", None)])
def test_another_locale_is_missing_as_before(name: object) -> None:
    said = said_by(f"""
        try:
            locale.setlocale(locale.LC_TIME, {name!r})
        except locale.Error as error:
            print(error)
    """)
    assert said == "unsupported locale setting\n"
