from __future__ import annotations

from collections.abc import Iterator

import pytest
from breakable import Platform, breakable_platform
from crawl_verifier import CrawlVerifier
from sites.server import Site


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """For all tests that leave it as they found it."""
    # of a log that never ends twice as much is shipped
    variables = {"CRAWL_MAX_LOG_BYTES": str(8 << 20), "GATEWAY_USER_STREAMS": "2000"}
    with breakable_platform(tmp_path_factory.mktemp("platform"), **variables) as platform:
        yield platform


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
def verifier(platform: Platform, site: Site) -> Iterator[CrawlVerifier]:
    with CrawlVerifier(platform.stack, site) as verifier:
        yield verifier
