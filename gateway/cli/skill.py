"""`discoverybot skill`: what a tool that writes spiders for the platform has to know."""

from __future__ import annotations

import sys
from importlib.resources import files


def skill() -> None:
    """How to write spiders for this platform, for AI agents and people: `discoverybot skill > AGENTS.md`."""
    sys.stdout.write(files("gateway.cli").joinpath("skill.md").read_text(encoding="utf-8"))
