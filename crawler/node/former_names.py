"""Names that Python and Scrapy have removed, for projects and libraries that have not been changed since then.

They had kept each of them for years as another name of the same object, so that object is what the code expects.
The names are found only where an attribute or an import would fail otherwise.
"""

from __future__ import annotations

import base64
import collections
import collections.abc
from collections.abc import Mapping
from contextlib import suppress
from types import FunctionType, ModuleType
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
        _lend(module, names)
    with suppress(Exception):  # a Scrapy that cannot be imported is reported where it is needed
        import scrapy.utils.url  # noqa: PLC0415 - the process of a listing has not imported it yet
        import w3lib.url  # noqa: PLC0415 - as above

        # all of its functions had been there, too
        found = {name: one for name, one in vars(w3lib.url).items() if isinstance(one, FunctionType)}
        _lend(scrapy.utils.url, {name: one for name, one in found.items() if not name.startswith("_")})


def _lend(module: ModuleType, names: Mapping[str, Any]) -> None:
    if "__getattr__" not in vars(module):  # a release that finds names itself knows better
        vars(module)["__getattr__"] = _finder(module.__name__, names)


def _finder(module: str, names: Mapping[str, Any]) -> Any:
    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn(f"{module}.{name} is there no more: it was {names[name]!r}", DeprecationWarning, stacklevel=2)
        return names[name]

    return find
