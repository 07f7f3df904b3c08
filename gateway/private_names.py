"""What the platform needs of other libraries that is not public.

Any release may change it, and a method that overrides nothing any more would never be called. So a process says at
its start which release it cannot use. `crawler/private_names.py` is the same for what runs in a spider's process.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any


def require_names(package: str, cls: type, *names: str) -> None:
    """Check that a class of the package has these methods, or attributes that its constructors set.

    Raises `ImportError` that names the package's release and the first name that is gone.
    """
    known = names_of(cls)
    if gone := [name for name in names if name not in known]:
        raise ImportError(
            f"{package} {version(package)} cannot be used: its {cls.__name__} has no {gone[0]}. Install an older "
            f"release of {package}, or update the platform"
        )


def names_of(found: Any) -> set[str]:
    """The attributes of a class, and the names in its constructors, because some attributes are set there. A function
    has none.
    """
    known: set[str] = set()
    for one in getattr(found, "__mro__", ()):
        known.update(vars(one))
        if code := getattr(vars(one).get("__init__"), "__code__", None):
            known.update(code.co_names)
    return known
