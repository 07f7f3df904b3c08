"""What these tests need of the machine. Where it is missing they are skipped, but never in CI."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def find_program(*names: str) -> str:
    """The path of the first one that is installed."""
    return next((path for name in names if (path := shutil.which(name))), None) or _missing(" or ".join(names))


def _missing(what: str) -> NoReturn:
    reason = f"{what} is not installed: see tests/install-system-packages"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
