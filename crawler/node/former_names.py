"""Names that Python has removed, for libraries that have had no release since then.

Python had kept each of them for years as another name of the same object, so that object is what a library expects.
The names are found only where an attribute or an import would fail otherwise.
"""

from __future__ import annotations

import base64
import collections
import collections.abc
from collections.abc import Mapping
from types import ModuleType
from typing import Any
from warnings import warn

#: By module: what its former names stood for.
_FORMER: dict[ModuleType, dict[str, Any]] = {
    collections: {name: getattr(collections.abc, name) for name in collections.abc.__all__},
    base64: {"encodestring": base64.encodebytes, "decodestring": base64.decodebytes},
}


def bring_back() -> None:
    """Let this process find the former names."""
    for module, names in _FORMER.items():
        if "__getattr__" not in vars(module):  # a Python that finds names itself knows better
            vars(module)["__getattr__"] = _finder(module.__name__, names)


def _finder(module: str, names: Mapping[str, Any]) -> Any:
    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn(f"{module}.{name} is no longer in Python: it was {names[name]!r}", DeprecationWarning, stacklevel=2)
        return names[name]

    return find
