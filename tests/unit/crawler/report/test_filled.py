"""A field counts as filled by one rule, in a crawl's own process (`expect`) and in the platform (datasets)."""

from __future__ import annotations

from typing import Any

import pytest

from crawler.report.progress import _is_filled
from gateway.datasets.figures import filled_as

FILLED: list[Any] = [0, 0.0, False, True, 7, "a", " a ", "0", [None], [""], {"a": None}]
EMPTY: list[Any] = [None, "", " ", "\t\n", "\u00a0", [], {}]


@pytest.mark.parametrize("value", [*FILLED, *EMPTY], ids=repr)
def test_both_sides_agree_about_every_value_of_json(value: Any) -> None:
    is_filled = any(value is one for one in FILLED)
    assert _is_filled(value) is is_filled
    assert (filled_as(value) is not None) is is_filled
