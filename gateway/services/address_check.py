"""Whether a crawl may go where it was asked to."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.domain.job import CrawlSpec
from gateway.domain.public_address import Network, check_url
from gateway.services.fetch_check import check_fetch
from gateway.services.rendering import renders


def check_addresses(spec: CrawlSpec, webhooks: Iterable[str], allowed: tuple[Network, ...]) -> None:
    """Raises `InvalidRequestError`, or `ForbiddenAddressError`, that names the field."""
    for index, url in enumerate(spec.start_urls):
        check_url(f"start_urls.{index}", url, allowed)
    check_fetch(spec.fetch, allowed, renders=renders(spec) is True)
    for url in webhooks:
        check_url("webhook_url", url, allowed)
