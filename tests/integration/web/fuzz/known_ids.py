"""Hooks of Schemathesis: half of the paths that name something name something that is there."""

from __future__ import annotations

import json
import os
from typing import Any

import schemathesis

#: By the parameter's name.
_KNOWN: dict[str, list[str]] = json.loads(os.environ["FUZZ_KNOWN_IDS"])


@schemathesis.hook
def map_path_parameters(context: schemathesis.HookContext, path_parameters: dict[str, Any] | None) -> Any:
    """Chosen by what was generated, so that a case that failed can be repeated."""
    for name, value in (path_parameters or {}).items():
        if (known := _KNOWN.get(name)) and (chance := sum(str(value).encode())) % 2:
            path_parameters[name] = known[chance // 2 % len(known)]
    return path_parameters
