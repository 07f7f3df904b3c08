"""The release; `make release` compares it with the others."""

from __future__ import annotations

__version__ = "0.3.0"
