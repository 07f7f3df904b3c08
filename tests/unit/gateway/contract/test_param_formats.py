"""Formats of parameters: what is taken, and what a refusal says."""

from __future__ import annotations

import time

import pytest
from lxml import html

from gateway.contract.param_formats import FORMATS, MAX_LENGTH, compile_pattern, compile_selector

GOOD = [
    ("css-selector", "h1"),
    ("css-selector", "ul > li:nth-child(2)::text"),
    ("css-selector", "a[href^='/x']::attr(href), .b"),
    ("xpath", "//h1/text()"),
    ("xpath", "normalize-space(.//p[not(ancestor::div) and has-class('a')])"),
    ("xpath", "//a[contains(., 'call re:test(it) for $5')]/@href"),
    ("xpath", "count(following-sibling::node())"),
    ("selector", "./td[2]"),
    ("selector", "(//table)[1]"),
    ("selector", "td:last-child"),
    ("re2", r"(?i)sku[:\s]+(\w+)"),
    ("re2", r"^(a+)+$"),
    ("http-url", "https://example.com/a?b=c"),
    ("http-url", "http://127.0.0.1:8000/"),
]
BAD = [
    ("css-selector", "h1[", "not a CSS selector"),
    ("css-selector", "h1::first-line", "unknown"),
    ("css-selector", " ", "is empty"),
    ("css-selector", "//h1", "not a CSS selector"),
    ("css-selector", "a " * 499, "not a CSS selector"),
    ("xpath", "//h1[", "not an XPath expression"),
    ("xpath", "//p[re:test(., '(a+)+$')]", "re:test(), which is not a function"),
    ("xpath", "document('file:///etc/passwd')", "document(), which is not a function"),
    ("xpath", "//p[. = $x]", "uses a variable"),
    ("xpath", "/" + "a" * MAX_LENGTH, "characters"),
    ("selector", "//h1[", "not an XPath expression"),
    ("selector", "h1 >", "not a CSS selector"),
    ("re2", "(", "missing )"),
    ("re2", r"(a)\1", "invalid escape sequence"),
    ("re2", "(?=a)", "not an RE2 expression"),
    ("re2", "((a{100}){100}){100}", "not an RE2 expression"),
    ("http-url", "ftp://example.com/", "http://"),
    ("http-url", "example.com", "http://"),
    ("http-url", "https://user:secret@example.com/", "credentials"),
]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_what_is_well_formed_is_taken(name: str, value: str) -> None:
    FORMATS[name](value)


@pytest.mark.parametrize(("name", "value", "reason"), BAD)
def test_what_is_not_is_refused_with_a_reason(name: str, value: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        FORMATS[name](value)
    assert reason in str(refusal.value)


def test_a_pattern_that_would_keep_other_engines_busy_for_ever_takes_milliseconds() -> None:
    pattern = compile_pattern(r"^(\w+\s?)*$")
    begun = time.monotonic()
    assert not pattern.search("word " * 10_000 + "!")
    assert time.monotonic() - begun < 0.5


def test_a_selector_is_read_as_css_or_as_xpath_by_how_it_begins() -> None:
    page = html.fromstring("<div><p class=a>one</p><p>two</p></div>")
    assert compile_selector("p.a::text")(page) == compile_selector("./p[1]/text()")(page) == ["one"]
