from __future__ import annotations

import pytest
from integration.crawler.conftest import run, start
from machine import find_program

__all__ = ["run", "start"]


@pytest.fixture(scope="session")
def chromium() -> str:
    return find_program("chromium", "chromium-browser", "google-chrome")
