from __future__ import annotations

from urllib.parse import urlparse

import pytest

from crawler.net.fetch_options import FetchScope

SCOPE = FetchScope(
    ["https://Shop.example/a", "http://127.0.0.1:8000/", "http://open.example", " https://open.example"]
)


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example/",
        "https://shop.example.:8443/",
        "https://www.shop.example/b",
        "http://127.0.0.1:9000/",
        "http://open.example/",
        "http://api.open.example/",
    ],
)
def test_the_hosts_that_were_named_and_their_subdomains_are_told(url: str) -> None:
    assert SCOPE.holds(urlparse(url))


@pytest.mark.parametrize(
    "url",
    [
        "https://example/",
        "https://ashop.example/",
        "https://shop.example.evil.example/",
        "https://shop.example@evil.example/",
        "http://127.0.0.2/",
        "data:,",
    ],
)
def test_nobody_else_is(url: str) -> None:
    assert not SCOPE.holds(urlparse(url))


def test_a_host_that_was_named_by_https_alone_is_not_told_in_clear() -> None:
    assert not SCOPE.holds(urlparse("http://shop.example/"))
    assert not SCOPE.holds(urlparse("http://www.shop.example/"))


def test_a_name_is_the_same_in_every_spelling() -> None:
    assert FetchScope(["https://bücher.example"]).holds(urlparse("https://xn--bcher-kva.example/"))
