from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contract.crawl import CrawlSpec, Expect, FetchOptions
from gateway.errors import InvalidRequestError
from gateway.jobs.dedupe import fingerprint

BASE: dict[str, Any] = {"spider": "seo", "start_urls": ("https://a.example/x", "https://b.example/"), "depth": 2}
urls = st.lists(st.sampled_from([f"https://{host}.example/{path}" for host in "abc" for path in "xyz"]), min_size=1)


@given(urls, st.randoms())
def test_order_and_repeats_of_start_urls_do_not_matter(start_urls: list[str], random: Any) -> None:
    shuffled = [*start_urls, start_urls[0]]
    random.shuffle(shuffled)
    one, other = ({**BASE, "start_urls": tuple(choice)} for choice in (start_urls, shuffled))
    assert fingerprint("u", CrawlSpec(**one)) == fingerprint("u", CrawlSpec(**other))


def test_spellings_of_one_url_are_one() -> None:
    spelled = {**BASE, "start_urls": ("HTTPS://A.example/x", "https://b.example")}
    assert fingerprint("u", CrawlSpec(**spelled)) == fingerprint("u", CrawlSpec(**BASE))


@pytest.mark.parametrize(
    "change",
    [{"depth": 3}, {"depth": None}, {"spider": "other"}, {"params": {"a": 1}}, {"max_pages": 5}, {"timeout": 5},
     {"project": "mine"}, {"start_urls": ("https://a.example/x",)}, {"version": "1"}, {"max_items": 5},
     {"settings": {"RETRY_TIMES": 1}}, {"env": {"REGION": "eu"}},
     {"project": "DEFAULT"}, {"start_urls": ("https://a.example/x#/jobs", "https://b.example/")},
     {"expect": Expect(min_items=1)}],
)  # fmt: skip
def test_whatever_changes_the_work_changes_the_identity(change: dict[str, Any]) -> None:
    assert fingerprint("u", CrawlSpec(**{**BASE, **change})) != fingerprint("u", CrawlSpec(**BASE))


@pytest.mark.parametrize(
    ("one", "other"),
    [("/#/jobs", "/#/about"), ("/#/jobs", "/"), ("/?a=1&b=2", "/?b=2&a=1"), ("/?a=1&a=2", "/?a=2&a=1")],
)
def test_pages_that_differ_in_fragment_or_order_of_query_are_two(one: str, other: str) -> None:
    asked = [CrawlSpec(**{**BASE, "start_urls": (f"https://a.example{page}",)}) for page in (one, other)]
    assert len({fingerprint("u", spec) for spec in asked}) == 2


def test_jobs_from_before_there_were_settings_and_variables_keep_their_identity() -> None:
    before = "e6414f4d9d7ea3e5212991f742ecb4e800e7cfcccb45c4428699648d3b50e848"
    assert fingerprint("u", CrawlSpec(**BASE)) == before
    assert fingerprint("u", CrawlSpec(**BASE, settings={}, env={})) == before


def test_spellings_of_a_query_are_one() -> None:
    spelled = [{**BASE, "start_urls": (f"https://a.example/?q={text}",)} for text in ("caf\u00e9", "caf%C3%A9")]
    assert len({fingerprint("u", CrawlSpec(**spec)) for spec in spelled}) == 1


def test_users_and_times_tell_requests_apart_and_ignore_cache_does_not() -> None:
    same = fingerprint("u", CrawlSpec(**BASE))
    assert fingerprint("v", CrawlSpec(**BASE)) != same
    assert fingerprint("u", CrawlSpec(**BASE), when={"interval": "@daily"}) != same
    assert fingerprint("u", CrawlSpec(**BASE, ignore_cache=True)) == same


def test_params_are_compared_by_content_not_by_order() -> None:
    one, other = CrawlSpec(**BASE, params={"a": 1, "b": 2}), CrawlSpec(**BASE, params={"b": 2, "a": 1})
    assert fingerprint("u", one) == fingerprint("u", other)


specs = st.fixed_dictionaries(
    {
        "project": st.sampled_from(["shop", "Shop"]),
        "version": st.sampled_from([None, "1", "2"]),
        "max_pages": st.sampled_from([None, 1, 2]),
        "max_items": st.sampled_from([None, 1, 2]),
        "expect": st.sampled_from([None, Expect(min_items=1), Expect(fields={"a": 1}), Expect(fields={"a": 0.5})]),
        "params": st.dictionaries(st.sampled_from("ab"), st.integers(0, 1)),
    }
)


@given(specs, specs)
def test_two_requests_are_one_exactly_if_they_ask_for_the_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = fingerprint("u", CrawlSpec(**{**BASE, **one})) == fingerprint("u", CrawlSpec(**{**BASE, **other}))
    assert same == (one == other)


OFFERS: dict[str, Any] = {
    "project": "shop",
    "version": "1.4",
    "spider": "offers",
    "start_urls": ("https://shop.example/",),
}
BOARD: dict[str, Any] = {"spider": "jobs", "start_urls": ("https://board.example/?q=go",), "site": "board"}


@pytest.mark.parametrize(
    ("document", "when", "stored"),
    [
        (BASE, None, "e6414f4d9d7ea3e5212991f742ecb4e800e7cfcccb45c4428699648d3b50e848"),
        (
            {
                **OFFERS,
                "params": {"a": "1"},
                "max_pages": 9,
                "max_items": 5,
                "timeout": 60,
                "fetch": FetchOptions(user_agent="x"),
            },
            None,
            "07c4392b153d4d723b9e65d8dbf5d0704829be73970e1d1af1d1a35bf888ca70",
        ),
        (
            {**BOARD, "site_rate_limit": "30/m", "ignore_cache": True},
            None,
            "f5ef6d15b94d7dd961301fe7ce7646b05c1f912ca1dfa2701385f9144b40d479",
        ),
        (
            BASE,
            {"interval": "@daily", "timezone": "UTC"},
            "641f0fa6c5914a889ed40a03cd68d8fb8db1aa25edda51e442e44b93afddd291",
        ),
    ],
)
def test_jobs_and_schedules_that_are_stored_already_answer_the_same_requests(
    document: dict[str, Any], when: dict[str, str] | None, stored: str
) -> None:
    """The fingerprints are those that version 0.1.0 has stored."""
    assert fingerprint("u", CrawlSpec(**document), when=when) == stored


def test_what_no_store_can_hold_is_refused_by_its_field() -> None:
    with pytest.raises(InvalidRequestError, match="params"):
        fingerprint("u", CrawlSpec(**BASE, params={"page": 2**64}))
