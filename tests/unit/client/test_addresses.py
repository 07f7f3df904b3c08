"""What is no address of a gateway is refused at once, and a password in it is not repeated."""

from __future__ import annotations

import traceback

import pytest

from discoverybot_client import Client


@pytest.mark.parametrize(
    "url",
    [
        "gw.test",
        "ftp://gw.test",
        "http://gw.test/?a=b",
        "http://gw.test/#f",
        "http://gw.test?",
        "http://gw:99999",
        "http://gw:0",
        "http://gw:abc",
        "http://[::1",
    ],
)
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match=r"^url: .* is not the address of a gateway$") as raised:
        Client(url)
    assert repr(url) in str(raised.value)


@pytest.mark.parametrize("url", ["http://me:secret@gw.test", "https://secret@gw.test/crawls"])
def test_a_password_in_an_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"^url: no name or password can be in it; send `headers`$"):
        Client(url)


@pytest.mark.parametrize("url", ["http://me:secret#x@gw.test", "http://me:secret@gw:99999", "me:secret@gw.test"])
def test_a_password_is_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"^url: ") as raised:
        Client(url)
    assert "secret" not in "".join(traceback.format_exception_only(raised.value))
    assert raised.value.__context__ is None


@pytest.mark.parametrize("url", ["http://gw.test/@team", "http://[::1]:8001", "https://gw.test:8443/crawls/"])
def test_an_address_is_taken_as_it_is(url: str) -> None:
    with Client(url) as client:
        assert url.rstrip("/") in repr(client)
