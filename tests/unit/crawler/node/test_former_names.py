from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest


def said_by(code: str) -> str:
    """What a process prints that has the former names. It is one of its own: they change modules of Python."""
    code = f"from crawler.node import former_names\nformer_names.bring_back()\n{dedent(code)}"
    command = [sys.executable, "-W", "default", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("former", "today"),
    [
        ("collections.MutableMapping", "collections.abc.MutableMapping"),
        ("collections.Iterable", "collections.abc.Iterable"),
        ("base64.encodestring", "base64.encodebytes"),
        ("scrapy.utils.url.canonicalize_url", "w3lib.url.canonicalize_url"),
    ],
)
def test_a_former_name_is_found_as_what_it_stood_for_and_warns(former: str, today: str) -> None:
    module, _, name = former.rpartition(".")
    said = said_by(f"""
        import base64, collections.abc, w3lib.url
        from {module} import {name}
        print({name} is {today})
    """)
    assert said.startswith("True")
    assert f"DeprecationWarning: {former} is there no more" in said


def test_other_names_are_missing_as_before() -> None:
    said = said_by("""
        import collections
        print(hasattr(collections, "unheard"), collections.OrderedDict.__name__)
        try:
            from collections import Unheard
        except ImportError as error:
            print(error.name, error)
    """)
    assert said.startswith("False OrderedDict\ncollections cannot import name 'Unheard' from 'collections'")
