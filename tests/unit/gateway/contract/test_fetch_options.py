from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.contract.crawl import MASK, MAX_BYTES, CrawlSpec, FetchOptions, protocol_of
from gateway.contract.outbox import PROTOCOLS
from gateway.contract.param_formats import parse_rate

SECRETS = FetchOptions(
    headers={"Authorization": "Bearer t0ken"},
    cookies={"session": "c00kie"},
    proxy="http://crawl:p4ssword@proxy.example:3128",
)


@pytest.mark.parametrize(("text", "rate"), [("40/s", 40), ("30/m", 0.5), ("1/h", 1 / 3600), ("999999/s", 999_999)])
def test_a_rate_is_a_number_of_requests_per_second_minute_or_hour(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0/s", "40", "40/d", "1.5/s", "-1/s", "1000000/s", " 1/s", "1/s\n", "٣/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as 30/m"):
        parse_rate(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"headers": {"Host": "elsewhere"}},
        {"headers": {"Cookie": "a=b"}},
        {"headers": {"User-Agent": "me"}},
        {"headers": {"X-A": "two\r\nlines"}},
        {"headers": {"X A": "b"}},
        {"headers": {"X-A": "日本"}},
        {"headers": {"X-A": "1", "x-a": "2"}},
        {"headers": {"X-A": "x" * MAX_BYTES}},
        {"headers": {"X-A": MASK}},
        {"cookies": {"a": "b; c=d"}},
        {"cookies": {"a b": "c"}},
        {"cookies": {"a": MASK}},
        {"user_agent": ""},
        {"user_agent": "me\nyou"},
        {"proxy": "socks5://proxy.example:1080"},
        {"proxy": "https://proxy.example:443"},
        {"proxy": "proxy.example:3128"},
        {"proxy": "http://proxy.example:0"},
        {"proxy": "http://proxy.example:port"},
        {"proxy": "http://proxy.example/path"},
        {"proxy": "http://"},
        {"proxy": f"http://{MASK}@proxy.example:3128"},
        {"proxy": "http://a:%E6%97@proxy.example:3128"},
        {"min_pause_seconds": -1},
        {"max_pause_seconds": 3601},
        {"min_pause_seconds": 3, "max_pause_seconds": 2},
        {"min_pause_seconds": float("nan")},
        {"concurrency": 0},
        {"concurrency": True},
        {"retry_codes": [200]},
        {"rate_limit": "fast"},
        {"respect": ["robots"]},
        {"respect": ["rsl"], "obey_robots": False},
        {"DOWNLOAD_DELAY": 0},
    ],
)
def test_what_cannot_be_sent_or_held_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FetchOptions(**fields)


def test_what_is_refused_is_not_quoted_where_it_may_be_secret() -> None:
    with pytest.raises(ValidationError) as caught:
        FetchOptions(proxy="https://crawl:p4ssword@proxy.example")
    assert "p4ssword" not in str([error["msg"] for error in caught.value.errors()])


def test_secrets_are_neither_shown_nor_printed() -> None:
    shown = CrawlSpec(spider="seo", start_urls=("http://a.example",), fetch=SECRETS).shown()
    assert shown.fetch is not None
    assert shown.fetch.headers == {"Authorization": MASK}
    assert shown.fetch.cookies == {"session": MASK}
    assert shown.fetch.proxy == f"http://{MASK}@proxy.example:3128"
    for text in (repr(SECRETS), str(SECRETS), shown.model_dump_json()):
        assert not [secret for secret in ("t0ken", "c00kie", "p4ssword") if secret in text]


def test_only_nodes_that_know_licenses_get_crawls_that_respect_them() -> None:
    spec = CrawlSpec(spider="seo", start_urls=("http://a.example",), fetch=FetchOptions(respect=("rsl",)))
    assert protocol_of(spec) == max(PROTOCOLS)
    assert protocol_of(spec.model_copy(update={"fetch": FetchOptions()})) == 1


def test_a_proxy_without_a_password_is_shown_as_it_is() -> None:
    options = FetchOptions(proxy="http://proxy.example:3128")
    assert options.masked() == options


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_headers_that_are_taken_can_be_sent(headers: dict[str, str]) -> None:
    try:
        options = FetchOptions(headers=headers)
    except ValidationError:
        return
    for name, value in options.headers.items():
        assert b"\n" not in f"{name}: {value}".encode("latin-1")
