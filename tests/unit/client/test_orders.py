"""What a client sends for a crawl that is asked for in a few words."""

from __future__ import annotations

from typing import Any

import pytest

from discoverybot_client.rules import order

URL = "https://example.com"


@pytest.mark.parametrize(
    ("urls", "spider", "fields", "sent"),
    [
        ((URL,), None, {}, "seo"),
        ((URL,), "article", {}, "article"),
        # the spiders of a project have names of their own, and so has one without start URLs
        ((URL,), None, {"project": "shop"}, None),
        ((), None, {}, None),
    ],
)
def test_a_page_alone_is_crawled_as_by_the_command_line(
    urls: tuple[str, ...], spider: str | None, fields: dict[str, Any], sent: str | None
) -> None:
    assert order("me", urls, spider, fields).get("spider") == sent
