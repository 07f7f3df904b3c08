from __future__ import annotations

import pytest
from browser.requirements import find_program
from integration.crawler.conftest import run, start

__all__ = ["run", "start"]


@pytest.fixture(scope="session")
def chromium() -> str:
    return find_program("chromium", "chromium-browser", "google-chrome")
