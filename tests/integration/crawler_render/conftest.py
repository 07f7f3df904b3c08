from __future__ import annotations

from typing import Any

import pytest
from integration.crawler.conftest import Run, Start
from integration.crawler.conftest import start as start_with
from machine import find_headless_chromium, find_program

__all__ = ["start_with"]


@pytest.fixture(scope="session")
def chromium() -> str:
    """The one that a node finds by itself."""
    return find_program("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> str:
    """The one that crawls render with. A file whose subject is what pages can do to a browser takes `chromium`."""
    return find_headless_chromium()


@pytest.fixture(scope="module")
def start(start_with: Start, browser: str) -> Start:
    def start_attempt(*args: Any, environ: dict[str, str] | None = None, **kwargs: Any) -> Any:
        return start_with(*args, environ={"CHROMIUM_PATH": browser, **(environ or {})}, **kwargs)

    return start_attempt


@pytest.fixture(scope="module")
def run(start: Start) -> Run:
    """Run a spider to its end."""
    return lambda *args, **kwargs: start(*args, **kwargs).wait()
