"""Signs the requests of our own spiders, where the node has a key for that (Web Bot Auth).

A deployed project's requests are not signed: its code could sign anything with the key, or keep it. So the key comes
only to processes of our own project, through the pipe that brings projects their variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from scrapy.exceptions import NotConfigured

from crawler.scrapy_versions import middleware

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

    from gateway.contract.bot_identity import BotIdentity

#: The name under which the identity comes with the variables: the URL of its directory, a line end, and the key.
BOT_IDENTITY = "DISCOVERYBOT_BOT_IDENTITY"

_given: list[str] = []


def as_variable(identity: BotIdentity | None) -> dict[str, str]:
    return {BOT_IDENTITY: f"{identity.url}\n{identity.private}"} if identity else {}


def take_identity(variables: dict[str, str]) -> None:
    """Take the identity out of the variables, so that it does not become one of the environment's."""
    if text := variables.pop(BOT_IDENTITY, None):
        _given.append(text)


@middleware
class BotSignature:
    """Downloader middleware after those that choose headers. It signs each hop and each try anew."""

    def __init__(self, identity: BotIdentity) -> None:
        self._identity = identity

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:  # noqa: ARG003 - Scrapy's signature
        if not _given:
            raise NotConfigured
        from gateway.contract.bot_identity import BotIdentity  # noqa: PLC0415 - few crawls need it

        url, _, private = _given[-1].partition("\n")
        return cls(BotIdentity(url, private))

    def process_request(self, request: Request) -> None:
        for name, value in self._identity.headers_for(request.url).items():
            request.headers[name] = value
