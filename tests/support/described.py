"""The application and what it says of itself, which takes a second to put together: tests share it once one asks."""

from __future__ import annotations

from functools import cache
from typing import Any

from gateway.application import create_app
from gateway.settings import Settings

APP = create_app(Settings())


@cache
def document() -> dict[str, Any]:
    return APP.openapi()
