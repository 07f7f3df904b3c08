"""JSON-LD as it stands in pages: broken, wrapped, nested and referred to."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml.html import document_fromstring

from crawler.job_posting.json_ld import Graph, json_ld, script_objects

POSTING = '{"@type": "JobPosting", "title": "Keeper"}'


def page(*scripts: str, kind: str = "application/ld+json") -> Any:
    return document_fromstring("<html><body>" + "".join(f'<script type="{kind}">{text}</script>' for text in scripts))


def titles(*scripts: str) -> list[Any]:
    return [posting.whole.get("title") for posting in Graph(list(json_ld(page(*scripts)))).postings()]


@pytest.mark.parametrize(
    "script",
    [
        POSTING,
        f"[{POSTING}]",
        f'{{"@graph": [{{"@type": "WebPage"}}, {POSTING}]}}',
        f'{{"@type": "WebPage", "mainEntity": {POSTING}}}',
        f'{{"@type": "WebPage", "mainEntity": {{"@type": "ItemList", "itemListElement": [{{"item": {POSTING}}}]}}}}',
        '{"@type": ["Thing", "https://schema.org/JobPosting"], "title": "Keeper"}',
        '{"@type": "schema:JobPosting", "title": "Keeper"}',
        '{"@type": "JobPosting", "title": "Keeper",}',
        '{"@type": "JobPosting", "skills": ["a", "b",], "title": "Keeper"}',
        '{"@type": "JobPosting", /* who */ "title": "Keeper"}',
        '// one\n{"@type": "JobPosting", "title": "Keeper"}',
        f"<!-- {POSTING} -->",
        f"//<![CDATA[\n{POSTING}\n//]]>",
        f"/*<![CDATA[*/ {POSTING} /*]]>*/",
        f"{POSTING};",
        '{"@type": "JobPosting", "title": "Keeper", "description": "two\nlines\tand a tab"}',
        r"""{"@type": "JobPosting", "title": "Keeper", "description": "the light\'s"}""",
        '{"@type": "JobPosting", "title": "Keeper", "description": "a\x01b"}',
        "{&quot;@type&quot;: &quot;JobPosting&quot;, &quot;title&quot;: &quot;Keeper&quot;}",
        f'{{"@type": "WebSite"}}{POSTING}',
        f"{POSTING}\n and what nobody asked for",
    ],
)
def test_a_posting_is_found_however_it_is_written(script: str) -> None:
    assert titles(script) == ["Keeper"]


def test_a_broken_script_leaves_the_others_as_they_are() -> None:
    assert titles('{"@type": "JobPosting", "title": "Lo', POSTING, "", "undefined", "[[[") == ["Keeper"]


@pytest.mark.parametrize("kind", ["application/ld+json", "application/LD+JSON", "application/ld+json; charset=utf-8"])
def test_the_type_of_a_script_may_be_spelled_in_many_ways(kind: str) -> None:
    assert len(list(json_ld(page(POSTING, kind=kind)))) == 1


def test_other_scripts_are_left_alone() -> None:
    assert list(json_ld(page(POSTING, kind="application/json"))) == []


def test_what_is_referred_to_stands_where_it_is_meant() -> None:
    (posting,) = Graph(
        [
            {
                "@graph": [
                    {"@type": "JobPosting", "title": "Keeper", "hiringOrganization": {"@id": "#light"}},
                    {"@id": "#light", "@type": "Organization", "name": "Skarholm Light"},
                ]
            }
        ]
    ).postings()
    assert posting.whole["hiringOrganization"]["name"] == "Skarholm Light"
    assert posting.written["hiringOrganization"] == {"@id": "#light"}


def test_references_in_circles_and_in_masses_take_no_time() -> None:
    many = [{"@id": "#a"}] * 2000
    nodes = [
        {"@id": "#a", "b": {"@id": "#b"}, "all": many, **{f"k{n}": n for n in range(2000)}},
        {"@id": "#b", "a": {"@id": "#a"}, "all": many},
        {"@type": "JobPosting", "title": "Keeper", "hiringOrganization": {"@id": "#a"}, "jobLocation": many},
    ]
    assert [posting.whole["title"] for posting in Graph(nodes).postings()] == ["Keeper"]


def test_a_script_meant_to_take_for_ever_takes_no_time() -> None:
    begun = time.monotonic()
    for text in ("{" + " " * 400_000 + "x", '{"a": "' + "\\" * 400_000, "{" + ", " * 200_000, "&amp;" * 100_000):
        assert script_objects(text) == []
    assert time.monotonic() - begun < 20


def test_links_come_from_lists_of_items_but_not_of_breadcrumbs() -> None:
    entries = [
        "/jobs/1",
        {"@type": "ListItem", "position": 2, "url": "/jobs/2"},
        {"@type": "ListItem", "item": "/jobs/3"},
        {"@type": "ListItem", "item": {"@type": "JobPosting", "url": "/jobs/4"}},
        {"@type": "ListItem", "item": {"@id": "/jobs/5"}},
        {"@type": "ListItem", "item": {"@type": "Product", "url": "/lamps/1"}},
        {"@type": "ListItem", "url": "/jobs/2"},
        {"@type": "ListItem"},
        7,
    ]
    crumbs = {"@type": "BreadcrumbList", "itemListElement": [{"@type": "ListItem", "item": "/home"}]}
    graph = Graph([{"@type": "ItemList", "url": "/search", "itemListElement": entries}, crumbs])
    assert graph.links() == [f"/jobs/{number}" for number in range(1, 6)]


def test_nesting_without_end_is_no_reason_to_fail() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    assert script_objects(deep) == []
    assert titles(deep, POSTING) == ["Keeper"]


@given(st.text('{}[]",:\\/*<!->;&quot ntrue0', max_size=80))
def test_whatever_is_in_a_script_is_no_reason_to_fail(text: str) -> None:
    assert isinstance(script_objects(text), list)


def test_only_the_part_of_extruct_that_reads_json_ld_is_imported() -> None:
    code = """
import sys
import crawler.job_posting.json_ld
assert not {"rdflib", "bs4", "html5lib", "mf2py"} & set(sys.modules), "all of it"
assert "extruct" not in sys.modules, "half a package"
import extruct
assert extruct.extract
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
