"""A class is found by its name alone: of those that other files may use there is one of each."""

from __future__ import annotations

import ast
from collections import Counter

from unit.house.sources import PACKAGES, ROOT, python_files

#: `scrapyd.conf` names its classes, as Scrapyd's own does: they may not be called otherwise.
NAMED_BY_CONFIGURATION = ROOT / "crawler/node/webservice.py"


def test_class_names_are_unique() -> None:
    names = Counter(
        node.name
        for path in python_files(*PACKAGES)
        if path != NAMED_BY_CONFIGURATION
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, number in names.items() if number > 1] == []
