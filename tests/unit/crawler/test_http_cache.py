from __future__ import annotations

import pytest
from scrapy import Request
from scrapy.http import HtmlResponse, Response
from scrapy.settings import Settings

from crawler.http_cache import CachePolicy, cache_key, pack, unpack
from crawler.setting_names import HTTPCACHE_USER

HEADERS = {"Content-Type": "text/html; charset=latin-1", "Set-Cookie": ["a=\xe9", "b=2"]}


@pytest.mark.parametrize("body", [b"", b"short \xe9", b"long enough to be worth compressing " * 100])
def test_a_response_comes_back_as_it_was(body: bytes) -> None:
    response = HtmlResponse("http://example.com/", headers=HEADERS, body=body, protocol="HTTP/1.1")
    again = unpack(pack(response), 1 << 20)
    assert again is not None
    assert (type(again), again.url, again.status, again.body) == (HtmlResponse, response.url, 200, body)
    assert again.headers.getlist("Set-Cookie") == response.headers.getlist("Set-Cookie")


def test_what_grows_too_large_is_damaged() -> None:
    with pytest.raises(ValueError, match="this size"):
        unpack(pack(Response("http://example.com/", body=b"x" * 100_000)), 1000)


@pytest.mark.parametrize(
    ("response", "cached"),
    [
        (Response("http://example.com/"), True),
        (Response("http://example.com/", status=404), True),
        (Response("http://example.com/", status=429), False),
        (Response("http://example.com/", status=503), False),
        (Response("http://example.com/", flags=["download_stopped"]), False),
        (Response("http://example.com/", headers={"Cache-Control": "no-store"}), False),
    ],
)
def test_only_whole_answers_of_a_healthy_server_are_kept(response: Response, cached: bool) -> None:  # noqa: FBT001 - a case
    assert CachePolicy(Settings()).should_cache_response(response, Request(response.url)) is cached


URL = "http://example.com/account"


@pytest.mark.parametrize(
    "other",
    [
        Request(URL, headers={"Authorization": "Bearer one"}),
        Request(URL, headers={"Authorization": "Bearer two"}),
        Request(URL, cookies={"session": "one"}),
        Request(URL, cookies=[{"name": "session", "value": "two"}]),
    ],
)
def test_a_page_that_was_shown_for_a_login_is_found_with_that_login_and_user_only(other: Request) -> None:
    plain = Request(URL)
    requests = [plain, Request(URL, cookies={"session": "three"}), Request(URL, headers={"Authorization": "three"})]
    keys = {cache_key(user, request, b"same") for user in ("anne", "bob") for request in (*requests, other)}
    assert len(keys) == 8
    assert cache_key("anne", other.copy(), b"same") == cache_key("anne", other, b"same")
    # what a site has set differs from crawl to crawl
    set_by_site = Request(URL, headers={"Cookie": "visit=1"})
    assert cache_key("anne", set_by_site, b"same") == cache_key("anne", plain, b"same")


@pytest.mark.parametrize(
    "request_",
    [Request(URL, headers={name: "x"}) for name in ("Authorization", "Cookie")] + [Request(URL, cookies={"a": "b"})],
)
def test_without_a_user_nothing_is_kept_that_was_shown_for_a_cookie_or_login(request_: Request) -> None:
    assert CachePolicy(Settings({HTTPCACHE_USER: "anne"})).should_cache_request(request_)
    assert not CachePolicy(Settings()).should_cache_request(request_)
    assert CachePolicy(Settings()).should_cache_request(Request(URL))
