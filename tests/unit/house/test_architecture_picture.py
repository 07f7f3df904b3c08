"""`docs/architecture.svg` is what `docs/architecture.py` draws."""

from __future__ import annotations

import runpy

from unit.house.sources import ROOT


def test_the_picture_is_what_its_source_draws() -> None:
    """`python docs/architecture.py` draws it anew."""
    source = runpy.run_path(str(ROOT / "docs/architecture.py"))
    assert (ROOT / "docs/architecture.svg").read_text(encoding="utf-8") == source["picture"]()
