from __future__ import annotations

import pytest

from crawler.extraction.page_urls import is_on_site, page_url, site_of


@pytest.mark.parametrize(
    ("written", "page"),
    [
        ("http://example.com", "http://example.com/"),
        ("HTTP://EXAMPLE.com:80/a#part", "http://example.com/a"),
        ("https://example.com:443/a?b=2&a=1", "https://example.com/a?b=2&a=1"),
        ("http://example.com:8080/a b", "http://example.com:8080/a%20b"),
        ("http://example.com/\\", "http://example.com/%5C"),
        ("http://[::1]:8000/", "http://[::1]:8000/"),
        ("http://user:secret@example.com/", "http://user:secret@example.com/"),
        ("mailto:someone@example.com", None),
        ("javascript:void(0)", None),
        ("http://", None),
        ("http://[half", None),
        ("http://example.com:port/", None),
    ],
)
def test_a_page_has_one_spelling(written: str, page: str | None) -> None:
    assert page_url(written) == page


def test_http_and_https_are_one_site_and_another_port_is_another() -> None:
    assert site_of("http://example.com/a") == site_of("https://example.com/")
    assert site_of("http://example.com:8080/") != site_of("http://example.com/")


def test_subdomains_are_part_of_a_site_only_on_request() -> None:
    assert not is_on_site("http://shop.example.com/", {"example.com"})
    assert is_on_site("http://shop.example.com/", {"example.com"}, subdomains=True)
    assert not is_on_site("http://notexample.com/", {"example.com"}, subdomains=True)
