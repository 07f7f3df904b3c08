"""The application and what it says of itself: it takes half a second to put together, so tests share it."""

from __future__ import annotations

from typing import Any

from gateway.application import create_app
from gateway.settings import Settings

APP = create_app(Settings())
DOCUMENT: dict[str, Any] = APP.openapi()
