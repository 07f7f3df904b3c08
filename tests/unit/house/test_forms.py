"""What is left to `make faults` says what `make test` has of it, and that is there."""

from __future__ import annotations

import re
import subprocess

from forms import first_in_short, in_full
from unit.house.sources import ROOT

TESTS = ROOT / "tests"
LEFT = re.compile(r"in_full\(\s*\"([^\"]+)\"")
FILE = re.compile(r"[\w/]+\.py")


def test_the_files_are_there_that_have_it_in_short() -> None:
    sources = [*TESTS.rglob("test_*.py")]
    left = [(path, short) for path in sources for short in LEFT.findall(path.read_text())]
    named = {(path, name) for path, short in left for name in FILE.findall(short)}
    assert len(named) > 20
    everywhere = {path.name for path in sources}
    assert not [
        (str(path.relative_to(ROOT)), name)
        for path, name in named
        if not any((folder / name).is_file() for folder in (TESTS, TESTS / "integration"))
        and not ("/" not in name and name in everywhere)
    ]


def test_make_faults_runs_each_file_that_has_a_full_form() -> None:
    uses = re.compile(r"^from (forms|hypothesis) import", re.MULTILINE)
    users = [path for path in TESTS.rglob("*.py") if path.name.startswith(("test_", "conftest"))]
    users = [path for path in users if uses.search(path.read_text())]
    told = subprocess.run(["make", "-n", "faults"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = re.findall(r"\btests/[\w/.]+", told)
    folders = [ROOT / name for name in named]
    assert not [path for path in users if not any(path.is_relative_to(folder) for folder in folders)]


def test_the_first_cases_are_run_and_the_others_left() -> None:
    one, other = first_in_short(["one", "other"])
    assert one == "one"
    assert (other.values, [mark.name for mark in other.marks]) == (("other",), ["full"])
    assert in_full("here").args == ("here",)
