from __future__ import annotations

import pytest

from gateway.contract.crawl import FetchOptions
from gateway.contract.public_address import parse_networks
from gateway.errors import ForbiddenAddressError, InvalidRequestError
from gateway.projects.catalog import check_fetch

INSIDE = [
    "127.0.0.1:3128",
    "user:secret@10.0.0.1:3128",
    "localhost:3128",
    "2130706433",
    "[::1]:3128",
    "proxy.internal",
]


@pytest.mark.parametrize("place", INSIDE)
def test_a_proxy_is_an_address_like_any_other(place: str) -> None:
    with pytest.raises(ForbiddenAddressError) as caught:
        check_fetch(FetchOptions(proxy=f"http://{place}"))
    assert caught.value.field == "fetch.proxy"
    assert "secret" not in caught.value.message


def test_one_in_a_network_that_is_allowed_may_be_used() -> None:
    check_fetch(FetchOptions(proxy="http://user:secret@10.0.0.1:3128"), parse_networks(["10.0.0.0/8"]))


def test_a_public_one_may_be_used_but_not_by_a_browser() -> None:
    options = FetchOptions(proxy="http://user:secret@proxy.example.com:3128")
    check_fetch(options)
    with pytest.raises(InvalidRequestError, match="renders pages"):
        check_fetch(options, renders=True)


def test_without_wishes_there_is_nothing_to_check() -> None:
    check_fetch(None)
    check_fetch(FetchOptions(), renders=True)
