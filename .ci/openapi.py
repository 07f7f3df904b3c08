"""Prints the API's description, from which clients are generated, as the gateway has it at `/openapi.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gateway.application import create_app
from gateway.settings import Settings

if __name__ == "__main__":
    json.dump(create_app(Settings()).openapi(), sys.stdout)
