from __future__ import annotations

from collections.abc import Iterator

import pytest
from breakable import Platform, breakable_platform
from sites.server import Site
from witness import Witness


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """For all tests that leave it as they found it."""
    with breakable_platform(tmp_path_factory.mktemp("platform")) as platform:
        yield platform


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
def witness(platform: Platform, site: Site) -> Iterator[Witness]:
    with Witness(platform.stack, site) as witness:
        yield witness
