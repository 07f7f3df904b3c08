"""What of the wishes for fetching can be seen, before anything is fetched, not to be possible."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit, urlunsplit

from gateway.domain.errors import InvalidRequestError
from gateway.domain.fetch_options import FetchOptions
from gateway.domain.public_address import Network, check_url

PROXY = "fetch.proxy"


def check_fetch(options: FetchOptions | None, allowed: Iterable[Network] = (), *, renders: bool = False) -> None:
    """Raises `InvalidRequestError` for what cannot be held, `ForbiddenAddressError` for a proxy that crawls may not
    reach. `renders`: the crawl drives a browser.
    """
    if options is None or options.proxy is None:
        return
    if renders:
        raise InvalidRequestError(PROXY, "a crawl that renders pages cannot have one: the browser would not use it")
    parts = urlsplit(options.proxy)
    # its password is the proxy's business, and not to be quoted
    check_url(PROXY, urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), allowed)
