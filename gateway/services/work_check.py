"""Whether a crawl that will be run later could be run, and may be."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.domain.job import CrawlSpec
from gateway.domain.public_address import Network
from gateway.services.address_check import check_addresses
from gateway.services.rendering import Rendering
from gateway.services.spider_catalog import SpiderCatalog


class WorkCheck:
    """Each raises `InvalidRequestError`, or `ForbiddenAddressError`, that names the field."""

    def __init__(
        self, catalog: SpiderCatalog, rendering: Rendering, allowed_networks: Iterable[Network] = ()
    ) -> None:
        self._catalog = catalog
        self._rendering = rendering
        self._allowed = tuple(allowed_networks)

    def addresses(self, spec: CrawlSpec, webhooks: Iterable[str]) -> None:
        check_addresses(spec, webhooks, self._allowed)

    def pin(self, spec: CrawlSpec) -> CrawlSpec:
        """As it would be run now."""
        return self._catalog.pin(spec)

    def means(self, pinned: CrawlSpec) -> None:
        """Whether its spider takes it, and a node could run it."""
        self._catalog.check(pinned)
        self._rendering.check(pinned)


def unpinned(spec: CrawlSpec, pinned: CrawlSpec) -> CrawlSpec:
    """What each of many runs begins with: the latest version of its time, unless one was named."""
    return pinned if spec.version else pinned.model_copy(update={"version": None})
