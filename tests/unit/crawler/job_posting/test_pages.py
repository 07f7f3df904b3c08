"""Result pages and the postings' own, by JSON-LD and by selectors."""

from __future__ import annotations

import json
from time import process_time
from typing import Any

import pytest
from scrapy.http import HtmlResponse

from crawler.extraction.rules import Page
from crawler.job_posting.pages import SelectedPostings, posting_on, results_of
from crawler.job_posting.posting import Posting

URL = "https://jobs.example/search"
ROWS = """
<ul>
 <li class=job><h2><a href="/jobs/1?ref=list"> Keeper <b>of the light</b></a></h2><p class=firm>Light AB</p>
   <p class=pay>€45.000 a year</p><time datetime=2026-03-01>3 days ago</time><div class=text><p>One<p>Two</div></li>
 <li class=job><h2><a href="https://elsewhere.example/2">Cook</a></h2><p class=firm></p></li>
 <li class=job><h2></h2></li>
</ul>
"""
SELECTORS = {
    "result": "li.job",
    "title": "h2",
    "company": ".firm::text",
    "salary": ".pay",
    "posted": "time",
    "description": ".text",
}
SELECTED = SelectedPostings(SELECTORS)


def page(body: str, *postings: Any, url: str = URL) -> Page:
    scripts = "".join(f'<script type="application/ld+json">{json.dumps(one)}</script>' for one in postings)
    return Page(HtmlResponse(url, body=f"<html lang=en><body>{body}{scripts}</body></html>".encode()))


def job(title: str, **more: Any) -> dict[str, Any]:
    return {"@type": "JobPosting", "title": title, **more}


def test_selectors_read_what_stands_in_each_result() -> None:
    keeper, cook, empty = results_of(page(ROWS), SELECTED)
    assert keeper.title == "Keeper of the light"
    assert keeper.company == "Light AB"
    assert keeper.salary == {
        "min": 45000,
        "max": 45000,
        "currency": "EUR",
        "period": "year",
        "text": "€45.000 a year",
    }
    assert keeper.posted == "2026-03-01"
    assert keeper.url == "https://jobs.example/jobs/1?ref=list"
    assert keeper.description == "One\nTwo"
    assert keeper.raw["posted"] == "2026-03-01"
    assert (cook.title, cook.company, cook.url) == ("Cook", None, "https://elsewhere.example/2")
    assert (empty.title, empty.url) == (None, None)


def test_a_selector_for_the_results_alone_will_do() -> None:
    selected = SelectedPostings({"result": "a.card", "title": None})
    body = '<a class=card href="/jobs/1"><h3>Keeper</h3><span>Lund</span></a><a class=card href="/jobs/2">Cook</a>'
    postings = results_of(page(body), selected)
    assert [(posting.title, posting.url) for posting in postings] == [
        ("Keeper", "https://jobs.example/jobs/1"),
        ("Cook", "https://jobs.example/jobs/2"),
    ]


def test_json_ld_is_preferred() -> None:
    results = results_of(page(ROWS, *(job(f"Job {number}") for number in range(3))), SELECTED)
    assert [posting.title for posting in results] == ["Job 0", "Job 1", "Job 2"]


def test_json_ld_of_one_advertised_posting_does_not_hide_the_others() -> None:
    advertised = job("Keeper (m/w)", url="/jobs/1?ref=list", hiringOrganization={"name": "The Light"})
    keeper, cook, _ = results_of(page(ROWS, advertised), SELECTED)
    assert (keeper.source, keeper.company, keeper.posted) == ("json-ld", "The Light", "2026-03-01")
    assert (cook.source, cook.title) == ("selectors", "Cook")


def test_a_list_of_links_is_a_list_of_postings() -> None:
    links = {"@type": "ItemList", "itemListElement": [{"@type": "ListItem", "url": f"/jobs/{n}"} for n in (1, 2)]}
    results = results_of(page("", links), SelectedPostings({}))
    assert [posting.url for posting in results] == [f"https://jobs.example/jobs/{n}" for n in (1, 2)]


def test_one_posting_that_cannot_be_read_leaves_the_others_as_they_are() -> None:
    bad = job("Bad", description={"a": ["<"] * 3}, datePosted=[[[{}]]], jobLocation=[1, [2]], baseSalary=[[["x"]]])
    results = results_of(page("", bad, job("Good")), SelectedPostings({}))
    assert "Good" in [posting.title for posting in results]


def test_a_url_that_all_postings_share_is_none_of_theirs() -> None:
    home = {"url": "https://company.example/"}
    postings = results_of(page("", job("A", **home), job("B", **home)), SelectedPostings({}))
    assert [posting.url for posting in postings] == [None, None]


def test_a_page_of_its_own_says_more_and_the_result_page_the_rest() -> None:
    listed = Posting("selectors", title="Keeper", company="Light AB", url="https://jobs.example/jobs/1")
    similar = job("Cook", url="/jobs/2")
    own = job("Keeper", url="https://company.example/", description="<p>All of it</p>")
    posting = posting_on(page("", similar, own, url="https://jobs.example/jobs/1"), listed, SelectedPostings({}))
    assert (posting.title, posting.company, posting.description) == ("Keeper", "Light AB", "All of it")
    assert (posting.url, posting.source) == ("https://jobs.example/jobs/1", "json-ld")


def test_selectors_fill_in_what_the_result_page_did_not_say() -> None:
    listed = Posting("selectors", title="Keeper", url="https://jobs.example/jobs/1", raw={"title": "Keeper"})
    own = page("<h2>Similar jobs</h2><div class=text>All of it</div>", url="https://jobs.example/jobs/1")
    posting = posting_on(own, listed, SELECTED)
    assert (posting.title, posting.description, posting.raw["title"]) == ("Keeper", "All of it", "Keeper")


def test_the_next_page_is_behind_the_selectors_link() -> None:
    selected = SelectedPostings({"next": ".pager a:last-child"})
    body = "<div class=pager><a href='?p=1'>1</a><a href='?p=2'>&gt;</a></div>"
    assert selected.next_url(page(body).root) == "?p=2"
    assert selected.next_url(page("").root) is None


def test_postings_are_the_same_by_url_or_by_identifier_with_what_it_stands_for() -> None:
    def same(one: Posting, other: Posting) -> bool:
        return not set(one.identities()).isdisjoint(other.identities())

    keeper = Posting("json-ld", title="Keeper", company="Light", identifier="7", url="https://jobs.example/7?from=1")
    again = Posting("json-ld", title="Keeper", company="Light", identifier="7", url="https://jobs.example/7?from=2")
    cook = Posting("json-ld", title="Cook", company="Light", identifier="7", url="https://jobs.example/8")
    assert same(keeper, again)
    assert not same(keeper, cook)
    assert same(Posting("selectors", title="A", url="https://a/"), Posting("selectors", title="B", url="https://a/"))
    assert not same(Posting("selectors", title="A"), Posting("selectors", title="B"))
    assert same(Posting("selectors", title="A"), Posting("selectors", title="A"))


def test_a_thousand_references_to_what_has_a_thousand_are_no_million() -> None:
    many = 2000
    graph = [
        job("Keeper", baseSalary=[{"@id": "a"}] * many, hiringOrganization=[{"@id": "a"}] * many)
        | {"jobLocation": [{"@id": "a"}] * many},
        {"@id": "a", "value": [{"@id": "b"}] * many, "name": [{"@id": "b"}] * many},
        {"@id": "b", "value": [{"value": {}, "unitText": []}] * many, "name": [{"name": [{}]}] * many},
    ]
    began = process_time()
    (posting,) = results_of(page("", {"@graph": graph}), SelectedPostings({}))
    assert (posting.title, posting.company, posting.salary) == ("Keeper", None, None)
    assert process_time() - began < 5


def test_a_page_with_more_postings_than_can_be_read_in_time_has_those_that_were() -> None:
    script = f'<script type="application/ld+json">{json.dumps([job("A"), job("B")])}</script>'
    late = Page(HtmlResponse(URL, body=script.encode()), max_seconds=0)
    assert results_of(late, SelectedPostings({})) == []


def test_a_base_that_is_no_url_is_passed_over() -> None:
    (posting,) = results_of(page("<base href='http://['>", job("Keeper", url="/1")), SelectedPostings({}))
    assert posting.url == "https://jobs.example/1"


def test_a_posting_whose_link_leads_to_other_postings_is_none_of_those() -> None:
    listed = Posting("selectors", title="Keeper", url="https://jobs.example/jobs/1#now")
    others = (job("Cook", url="/jobs/2"), job("Diver", url="/jobs/3"))
    for instead in (page("", *others), page(ROWS)):
        posting = posting_on(instead, listed, SELECTED)
        assert (posting.title, posting.url, posting.description) == ("Keeper", listed.url, None)
    own = page("", job("Keeper of the Light"), *others, url="https://jobs.example/jobs/1")
    assert posting_on(own, listed, SELECTED).title == "Keeper of the Light"


@pytest.mark.parametrize("href", ["#", "javascript:void(0)", "/search", ""])
def test_rows_whose_links_lead_nowhere_are_postings_of_their_own(href: str) -> None:
    titles = ["Keeper", "Cook", "Diver"]
    body = "".join(f"<li class=job><h2><a href='{href}'>{title}</a></h2>" for title in titles)
    postings = results_of(page(body), SELECTED)
    assert [(posting.title, posting.url) for posting in postings] == [(title, None) for title in titles]
    assert len({identity for posting in postings for identity in posting.identities()}) == 3


def test_a_row_that_has_two_parts_keeps_its_url() -> None:
    body = "<li class=job><a href='/1'><h2>Keeper</h2></a><li class=job><a href='/1'>more</a>"
    postings = results_of(page(body), SELECTED)
    assert [(posting.title, posting.url) for posting in postings] == [
        ("Keeper", "https://jobs.example/1"),
        (None, "https://jobs.example/1"),
    ]


def test_the_link_of_a_row_is_one_that_leads_somewhere() -> None:
    body = "<li class=job><a href='#'>save</a><a href='javascript:share()'>share</a><h3><a href='/1'>Keeper</a></h3>"
    (posting,) = results_of(page(body), SelectedPostings({"result": ".job"}))
    assert (posting.title, posting.url) == ("Keeper", "https://jobs.example/1")
