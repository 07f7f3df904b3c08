"""An interpreter of an environment that has only Scrapy: `python bare_python.py -c … | -m …`.

Packages that are installed here but are neither Scrapy nor required by it cannot be imported.
"""

from __future__ import annotations

import re
import runpy
import sys
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from typing import Any

BARE = __file__


def _needed(distribution: str, found: set[str]) -> set[str]:
    name = re.sub(r"[-_.]+", "-", distribution).lower()
    if name not in found:
        found.add(name)
        try:
            wanted = requires(name) or []
        except PackageNotFoundError:
            return found
        for line in wanted:
            if "extra ==" not in line:
                match = re.match(r"[\w.-]+", line)
                _needed(match[0] if match else "", found)
    return found


class OnlyScrapy:
    """A finder that replaces all others."""

    def __init__(self, others: list[Any]) -> None:
        self._others = others
        needed = _needed("scrapy", set())
        self._refused = {
            top
            for top, distributions in packages_distributions().items()
            if not any(re.sub(r"[-_.]+", "-", one).lower() in needed for one in distributions)
        } - {"crawler", "gateway"}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in self._refused:
            return None
        specs = (finder.find_spec(name, path, target) for finder in self._others)
        return next((spec for spec in specs if spec is not None), None)

    def find_distributions(self, context: Any) -> Any:
        return PathFinder.find_distributions(context)


if __name__ == "__main__":
    sys.meta_path[:] = [OnlyScrapy([*sys.meta_path])]  # type: ignore[list-item]
    flag, what, *rest = sys.argv[1:]
    sys.argv = [what, *rest]
    if flag == "-c":
        exec(what, {"__name__": "__main__"})
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)
