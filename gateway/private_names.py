"""Checks that private names of other libraries, which the platform uses, still exist.

Any release of a library may change them: then a method of ours that overrides one would silently never be called. So
a process checks the names at its start, and names a release that it cannot use. `crawler/private_names.py` does the
same for spiders' processes.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any


def require_names(package: str, cls: type, *names: str) -> None:
    """Check that a class of the package has these methods, or attributes that its constructors set.

    Raises `ImportError`, which names the package's release and the first missing name.
    """
    known = names_of(cls)
    if gone := [name for name in names if name not in known]:
        raise ImportError(
            f"{package} {version(package)} cannot be used: its {cls.__name__} has no {gone[0]}. Install an older "
            f"release of {package}, or update the platform"
        )


def names_of(found: Any) -> set[str]:
    """The attributes of a class and of its bases, and all names that their constructors use, because some attributes
    are set only there. Empty if `found` is not a class.
    """
    known: set[str] = set()
    for one in getattr(found, "__mro__", ()):
        known.update(vars(one))
        if code := getattr(vars(one).get("__init__"), "__code__", None):
            known.update(code.co_names)
    return known
