from __future__ import annotations

import pytest
from egress_tricks import TRICKS

from gateway.contract.public_address import check_url, is_allowed, parse_networks
from gateway.errors import ForbiddenAddressError, InvalidRequestError

FORBIDDEN_URLS = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://0/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://a.localhost/",
    "http://printer.local/",
    "http://metadata.google.internal/",
    "http://10.0.0.1/",
    "http://172.16.5.4/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/",
    "http://100.64.0.1/",
    "http://192.0.0.192/",
    "http://168.63.129.16/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[fe80::1]/",
    "http://[fc00::1]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::a00:1]/",
    "http://[2002:a9fe:a9fe::]/",
    "http://[::a9fe:a9fe]/",
    "http://[fd00:ec2::254]/",
    "http://[2001:0:4136:e378:8000:63bf:5601:5601]/",
    "http://１２７.0.0.1/",
    "http://127。0。0。1/",
    "https://127.0.0.1:8443/",
]
MALFORMED_URLS = [
    "file:///etc/hostname",
    "ftp://example.com/",
    "s3://bucket/key",
    "gopher://example.com/",
    "javascript:alert(1)",
    "data:text/html,x",
    "http://",
    "http:///path",
    "//example.com/",
    "example.com",
    "http://example.com:0/",
    "http://example.com:99999/",
    "http://[::1",
    "http://exa mple.com/",
    "http://example.com/a\nb",
    "http://example.com/\x00",
]


@pytest.mark.parametrize("url", FORBIDDEN_URLS)
def test_urls_that_reach_inside_are_refused_and_the_field_is_named(url: str) -> None:
    with pytest.raises(ForbiddenAddressError, match="allow it with CRAWL_ALLOW_NETWORKS") as caught:
        check_url("start_urls.3", url)
    assert caught.value.field == "start_urls.3"


@pytest.mark.parametrize("url", TRICKS)
def test_tricks_are_refused_before_anything_is_fetched(url: str) -> None:
    with pytest.raises(InvalidRequestError):
        check_url("start_urls.0", url.replace("PORT", "8080"))


@pytest.mark.parametrize("url", ["http://wiki/", "http://wiki.corp/", "http://nas.local:5000/"])
def test_names_of_a_network_are_let_through_where_one_is_allowed(url: str) -> None:
    with pytest.raises(ForbiddenAddressError, match="is not a public name"):
        check_url("start_urls.0", url)
    check_url("start_urls.0", url, parse_networks(["10.0.0.0/8"]))


@pytest.mark.parametrize("url", MALFORMED_URLS)
def test_what_is_no_url_is_invalid_rather_than_forbidden(url: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_url("start_urls.3", url)
    assert type(caught.value) is InvalidRequestError
    assert caught.value.field == "start_urls.3"


@pytest.mark.parametrize(
    "url",
    ["http://user:s3cret@example.com/", "http://user:s3cret@127.0.0.1/", "http://example.com@127.0.0.1/",
     "ftp://user:s3cret@example.com/", "user:s3cret@example.com", "http://user:s3cret@[::1", "http://s3cret@:x/"],
)  # fmt: skip
def test_credentials_are_refused_and_never_quoted(url: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_url("start_urls.0", url)
    assert "s3cret" not in caught.value.message
    assert type(caught.value) is InvalidRequestError


@pytest.mark.parametrize(
    "url",
    ["http://example.com/", "https://8.8.8.8/x?y#z", "http://[2606:4700::1111]:8080/", "https://bücher.example/",
     "http://localhost.example.com/", "http://[64:ff9b::808:808]/", "https://internal-tools.com/", "http://xn--bcher-kva.example/",
     "http://a_b.example.com./", "http://[2a00::5efe:808:808]/"],
)  # fmt: skip
def test_public_urls_are_let_through(url: str) -> None:
    check_url("start_urls.0", url)


def test_networks_can_be_allowed_explicitly() -> None:
    loopback = parse_networks(["127.0.0.0/8", "::1/128"])
    for url in ("http://127.0.0.1:8000/", "http://localhost/", "http://[::1]/", "http://[::ffff:127.0.0.1]/"):
        check_url("start_urls.0", url, loopback)
    assert not is_allowed("10.0.0.1", loopback)


def test_a_malformed_network_is_named() -> None:
    with pytest.raises(ValueError, match="10\\.0\\.0\\.0/99"):
        parse_networks(["10.0.0.0/99"])
