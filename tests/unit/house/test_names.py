"""No two classes that other files may use have the same name, so a search for a class by its name finds one."""

from __future__ import annotations

import re
from collections import Counter

from unit.house.sources import PACKAGES, ROOT, python_files

#: `scrapyd.conf` names its classes, as Scrapyd's own does: they may not be called otherwise.
NAMED_BY_CONFIGURATION = ROOT / "crawler/node/webservice.py"
#: A class that other files may use: its name begins with no underscore. A line of a text that looks like such a class
#: counts, too.
CLASS = re.compile(r"^class ([^\W_]\w*)", flags=re.MULTILINE)


def test_class_names_are_unique() -> None:
    names = Counter(
        name
        for path in python_files(*PACKAGES)
        if path != NAMED_BY_CONFIGURATION
        for name in CLASS.findall(path.read_text(encoding="utf-8"))
    )
    assert [name for name, number in names.items() if number > 1] == []
