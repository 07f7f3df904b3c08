from __future__ import annotations

from collections.abc import Iterator

import pytest
from sites.server import Site
from stack import Stack, running_stack
from wheels import wheels_of, write_wheels_of_node


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One platform for all tests that leave it as they found it."""
    # what the examples require; no index is asked
    wheels = tmp_path_factory.mktemp("wheels")
    write_wheels_of_node(wheels)
    wheels_of(wheels, "python-dateutil")
    # seconds; what `/scrape` is asked for here is there in a fraction of it
    variables = {"CRAWL_STOP_GRACE": "3", "SCRAPE_SYNC_TIMEOUT": "12"}
    variables |= {"PROJECT_INDEX_URL": "none", "PROJECT_WHEELS": str(wheels)}
    with running_stack(tmp_path_factory.mktemp("stack") / "home", **variables) as stack:
        yield stack


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site
