"""What makes two errors one."""

from __future__ import annotations

import time

import pytest

from gateway.contract.error_fingerprint import (
    LONGEST_EXAMPLE,
    LONGEST_MESSAGE,
    LONGEST_URL,
    fingerprint,
    group,
    without_values,
)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("no price on page 17", "no price on page 4711", "no price on page <number>"),
        ("GET https://a.example/1?x=2 failed", "GET http://b.example:81/ failed", "GET <url> failed"),
        ("<Foo at 0x7f8a3c> is gone", "<Foo at 0xdeadbeef> is gone", "<Foo at <address>> is gone"),
        ("order 5f0c8e3a9d1b4c7e lost", "order 00000000deadbeef lost", "order <hex> lost"),
        (
            "job 8c4f2e1a-0b1c-4d2e-9f3a-1b2c3d4e5f60",
            "job 00000000-0000-0000-0000-000000000000",
            "job <uuid>",
        ),
        ("could not convert '€ 9'", 'could not convert "it\'s free"', "could not convert <text>"),
        (
            "took 12.5 s at 10:00:01, 2027-06-01",
            "took 1 s at 9:30, 1.6.2027",
            "took <number> s at <number>, <number>",
        ),
        ("can't find 'a'", "can't find 'b'", "can't find <text>"),
        ("10.0.0.1:80 refused", "192.168.7.9:8080 refused", "<number> refused"),
        ("two\n\tlines\x00\x1b[31m", "two lines [7m", "two lines [<number>m"),
    ],
)
def test_values_do_not_count(one: str, other: str, same: str) -> None:
    assert without_values(one) == without_values(other) == same
    made = [group("exception", "ValueError", "shop/spider.py:parse", text) for text in (one, other)]
    assert made[0]["fingerprint"] == made[1]["fingerprint"]


def test_words_names_and_places_count() -> None:
    base = ("exception", "ValueError", "shop/spider.py:parse", "no price")
    found = {
        fingerprint(*base),
        fingerprint("log", *base[1:]),
        fingerprint("exception", "KeyError", *base[2:]),
        fingerprint("exception", "ValueError", "shop/spider.py:other", "no price"),
        fingerprint(*base[:3], "no stock"),
    }
    assert len(found) == 5


def test_of_a_host_there_is_one_group_for_each_status() -> None:
    found = [group("status", "503", "a.example", text) for text in ("HTTP 503", "HTTP 503 Service Unavailable")]
    assert found[0]["fingerprint"] == found[1]["fingerprint"]
    assert group("status", "503", "b.example", "HTTP 503")["fingerprint"] != found[0]["fingerprint"]


@pytest.mark.parametrize(
    "text",
    [
        "'" * 5_000_000,
        "'\n" * 1_000_000,
        "a" * 5_000_000,
        "0123456789abcdef-" * 300_000,
        "1" * 5_000_000,
        "1." * 2_000_000,
        "f" * 2_000_000 + "g",
        "http+" * 1_000_000,
        "x://" * 1_000_000,
        "https://" + "a@" * 1_000_000,
        "\x00\x1b\u202e" * 1_000_000,
        "\ud800" * 1_000_000,
        " " * 5_000_000,
    ],
)
def test_a_hostile_message_is_bounded_in_time_and_size(text: str) -> None:
    began = time.process_time()
    made = group("log", text, text, text, form=text, url=text)
    assert time.process_time() - began < 0.2
    assert len(made["message"]) <= LONGEST_MESSAGE
    assert len(made["example"]) <= LONGEST_EXAMPLE
    assert len(made["url"]) <= LONGEST_URL
    shown = "".join(map(str, made.values()))
    assert shown.isprintable()
    shown.encode()


def test_no_login_is_kept() -> None:
    made = group(
        "log", "ERROR", "shop", "GET http://ada:s3cret@a.example/ failed", url="http://ada:s3cret@a.example/"
    )
    assert "s3cret" not in str(made)
    assert made["url"] == "http://a.example/"
