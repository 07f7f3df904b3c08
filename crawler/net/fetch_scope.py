"""Where a request's headers and cookies may go: to the hosts that whoever gave them has named, and no further."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import ParseResult, urlsplit

from gateway.contract.public_address import ascii_host


class FetchScope:
    """The start URLs' hosts and their subdomains. A host that was named by `https` alone is not told in clear."""

    def __init__(self, start_urls: Iterable[str]) -> None:
        #: Host → whether plain HTTP will do.
        self.hosts: dict[str, bool] = {}
        for url in start_urls:
            parts = urlsplit(url.strip())
            host = _name(parts.hostname)
            if host:
                self.hosts[host] = self.hosts.get(host, False) or parts.scheme == "http"

    def holds(self, url: ParseResult) -> bool:
        host = _name(url.hostname)
        return any(
            (host == known or host.endswith(f".{known}")) and (in_clear or url.scheme == "https")
            for known, in_clear in self.hosts.items()
        )


def _name(host: str | None) -> str:
    return ascii_host(host or "").rstrip(".").lower()
