"""Workers share the files of tests out by their folders."""

from __future__ import annotations

from by_folder import next_file

WAITING = [
    *("tests/e2e/test_a.py", "tests/unit/web/test_b.py"),
    *("tests/unit/web/console/test_c.py", "tests/e2e/test_d.py"),
]


def test_a_worker_stays_in_its_folder_while_there_is_something_in_it() -> None:
    assert next_file(WAITING, "tests/unit/web", {"tests/e2e"}) == "tests/unit/web/test_b.py"
    assert next_file(WAITING[2:], "tests/unit/web", {"tests/e2e"}) == "tests/unit/web/console/test_c.py"


def test_a_worker_that_is_done_goes_where_nobody_is_or_else_where_most_is_left() -> None:
    assert next_file(WAITING, None, {"tests/e2e"}) == "tests/unit/web/test_b.py"
    assert next_file(WAITING[:3], "tests/faults", {"tests/e2e", "tests/unit/web"}) == "tests/unit/web/test_b.py"
