from __future__ import annotations

from pathlib import Path

from embedded.mongo.supported import as_markdown

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "embedded-mongodb.md"


def test_the_reference_page_lists_what_is_supported() -> None:
    """`python -m embedded.mongo.supported` prints the rows."""
    assert as_markdown() in PAGE.read_text()
