from __future__ import annotations

import pytest

from gateway.cli.api import of_status


@pytest.mark.parametrize(
    ("status", "code"), [("finished", 0), ("error", 1), ("partial", 3), ("cancelled", 4), ("unheard of", 1)]
)
def test_the_outcome_has_an_exit_code(status: str, code: int) -> None:
    assert of_status(status) == code
