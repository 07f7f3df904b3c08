"""The `article` spider on a small newspaper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sites.server import Site, html

from .conftest import Run

SUBJECTS = ("harbour", "library", "orchard", "tramway", "lighthouse", "market", "bridge")
PARAGRAPHS = "".join(
    f"<p>The {subject} was on everybody's mind this week, after the council had decided, against all "
    f"<a href='/about'>expectations</a>, to let <b>the {subject}</b> be rebuilt by those who use it every day.</p>"
    for subject in SUBJECTS
)
FURNITURE = (
    "<header><a href='/'>The Daily</a><nav><a href='/news/harbour'>News</a><a href='/about'>About</a></nav></header>"
)
ARTICLE = f"""<!doctype html><html lang="en-GB"><head><title>The harbour will be rebuilt | The Daily</title>
<meta property="og:title" content="The harbour will be rebuilt"><meta property="og:site_name" content="The Daily">
<meta property="og:type" content="article"><meta property="og:image" content="/harbour.jpg">
<meta name="author" content="Ann Author"><meta name="keywords" content="harbour, council">
<meta property="article:published_time" content="2026-03-01T08:00:00Z">
<meta name="description" content="The council has decided."></head><body>{FURNITURE}
<main><article><h1>The harbour will be rebuilt</h1>{PARAGRAPHS}<h2>What comes next</h2>
<ul><li><a href='plain'>a plan</a></li><li>a vote</li></ul></article></main>
<aside><h3>Most read</h3><a href='/news/plain'>Something else</a></aside>
<section id=comments class=comments><h3>Comments</h3><p>First! This is what I wanted to say about it.</p></section>
<footer>Copyright The Daily. All rights reserved. <a href='/huge'>Imprint</a></footer></body></html>"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    pages = {
        "/": html(FURNITURE + "<ul><li><a href='/news/harbour'>The harbour</a></ul>", "The Daily"),
        "/about": html(FURNITURE + "<p>We are a newspaper.</p>", "About"),
        "/news/harbour": ARTICLE,
        "/news/plain": html(f"{FURNITURE}<div>{PARAGRAPHS}</div>", "Plain"),
        "/huge": html("<p>word word<br>" * 15_000),
    }
    with Site(pages) as running:
        yield running


def test_the_articles_of_a_site_are_read(run: Run, site: Site) -> None:
    crawl = run("article", site.url, params={"format": "markdown"})
    items = {item["url"].removeprefix(site.url): item for item in crawl.items}
    assert items.keys() == {"/news/harbour", "/news/plain"}
    harbour = items["/news/harbour"]
    text, markdown = harbour.pop("text"), harbour.pop("markdown")
    assert harbour == {
        "url": f"{site.url}/news/harbour",
        "title": "The harbour will be rebuilt",
        "author": "Ann Author",
        "date": "2026-03-01",
        "language": "en-GB",
        "site_name": "The Daily",
        "image": f"{site.url}/harbour.jpg",
        "tags": ["harbour", "council"],
        "excerpt": "The council has decided.",
        "word_count": len(text.split()),
    }
    assert all(f"let the {subject} be rebuilt" in text for subject in SUBJECTS)
    assert "**the harbour**" in markdown
    assert "## What comes next" in markdown
    assert f"[a plan]({site.url}/news/plain)" in markdown, "of the page's folder, not of the host"
    for around in ("Copyright", "First!", "Most read", "About"):
        assert around not in text
    assert crawl.report["stats"]["article/too_large"] == 1


def test_start_urls_alone_are_articles_without_looking_like_one(run: Run, site: Site) -> None:
    crawl = run("article", f"{site.url}/about", depth=0, params={"min_words": 3})
    assert [item["text"].splitlines()[-1] for item in crawl.items] == ["We are a newspaper."]
    assert run("article", f"{site.url}/about", depth=0).items == []
