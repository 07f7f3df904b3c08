"""The application and its OpenAPI document, which takes a second to make. Tests share it once one of them
needs it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from gateway.application import create_app
from gateway.settings import Settings

APP = create_app(Settings())


@cache
def document() -> dict[str, Any]:
    return APP.openapi()
