from __future__ import annotations

from collections.abc import Iterator

import pytest
from sites.server import Site
from stack import Stack, running_stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One platform for all tests that leave it as they found it."""
    with running_stack(tmp_path_factory.mktemp("stack") / "home", CRAWL_STOP_GRACE="3") as stack:
        yield stack


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site
