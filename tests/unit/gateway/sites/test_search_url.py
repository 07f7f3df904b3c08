from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidRequestError
from gateway.sites.site import SearchUrl

TEMPLATE = "https://jobs.example/in/{location}/search?q={keywords}&p={page}#{keywords}"
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


def test_words_are_quoted_for_where_they_stand() -> None:
    url = SearchUrl(TEMPLATE).render("C++ & Co/Go?", "Köln #1", 2)
    assert url == (
        "https://jobs.example/in/K%C3%B6ln%20%231/search?q=C%2B%2B%20%26%20Co%2FGo%3F&p=2#C%2B%2B%20%26%20Co%2FGo%3F"
    )


@given(words, words)
def test_whatever_the_words_the_site_reads_them_back_and_nothing_else_changes(keywords: str, location: str) -> None:
    parts = urlsplit(SearchUrl("https://jobs.example/in/{location}/x?q={keywords}&p=1").render(keywords, location))
    assert parts.netloc == "jobs.example"
    assert [unquote(part) for part in parts.path.split("/")] == ["", "in", location, "x"]
    assert parse_qs(parts.query, keep_blank_values=True) == {"q": [keywords], "p": ["1"]}


def test_without_a_page_its_place_is_left_open() -> None:
    assert SearchUrl("http://a.example/?q={keywords}&p={page}").render("{page}", "") == (
        "http://a.example/?q=%7Bpage%7D&p={page}"
    )


@pytest.mark.parametrize(
    "template",
    [
        "https://a.example/{keyword}",
        "https://a.example/{}",
        "https://a.example/{keywords.__class__}",
        "https://a.example/{keywords",
        "https://a.example/keywords}",
        "https://a.example/{{keywords}}",
        "https://{location}.example/",
        "https://a.example:{page}/",
        "{keywords}",
        "/search?q={keywords}",
    ],
)
def test_a_template_that_cannot_be_filled_in_is_refused_by_its_field(template: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        SearchUrl(template)
    assert refused.value.field == "search_url"


@pytest.mark.parametrize(
    ("template", "keywords", "location", "named"),
    [
        ("https://a.example/?q={keywords}&l={location}", "", "", None),
        ("https://a.example/?q={keywords}", "go", "", None),
        ("https://a.example/?q={keywords}", "go", "Paris", "location"),
        ("https://a.example/", "go", "", "keywords"),
        ("https://a.example/{location}/{keywords}", "go", "", "location"),
    ],
)
def test_words_must_suit_the_template(template: str, keywords: str, location: str, named: str | None) -> None:
    refusal = SearchUrl(template).refusal({"keywords": keywords, "location": location})
    assert (refusal and refusal[0]) == named
