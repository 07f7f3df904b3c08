"""The `pages` spider on a small handbook."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sites.server import Reply, Site, html

from .conftest import Run

MENU = (
    "<header><a href='/docs/'>Docs</a></header>"
    "<nav><a href='/blog/news'>News</a> <a href='/docs/more?x=1'>More</a></nav>"
)
TEXT = (
    "<main><h1>Set it up</h1><p>First <b>read</b> <a href='more?x=2'>more</a>.</p><p class=ad>Buy</p>"
    "<table><tr><th>Key</th><th>Value</th></tr><tr><td>a|b</td><td>1</td></tr></table>"
    "<ol><li>one<ul><li>inner</li></ul></li><li>two</li></ol><pre>x = 1\ny = 2</pre></main>"
)
SITEMAP = "<urlset><url><loc>{}/docs/hidden</loc></url><url><loc>{}/blog/old</loc></url></urlset>"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    pages: dict[str, str | Reply] = {
        "/docs/": html(MENU + TEXT + "<footer>Imprint</footer><script>track()</script>", "The handbook"),
        "/docs/more?x=1": html("<p>More</p>", "More"),
        "/docs/more?x=2": html("<p>More</p>", "More"),
        "/docs/more": html("<p>More</p><a href='/docs/gone'>gone</a><a href='/docs/data.json'>data</a>", "More"),
        "/docs/data.json": Reply('{"a": 1}', content_type="application/json"),
        "/docs/hidden": html("<p>Only the sitemap knows it.</p>"),
        "/blog/news": html("<p>News</p>"),
        "/blog/old": html("<p>Old news</p>"),
        "/docs/film": Reply(b"\x00" * 100, content_type="video/mp4"),
    }
    with Site(pages) as running:
        running.pages["/sitemap.xml"] = Reply(SITEMAP.replace("{}", running.url), content_type="application/xml")
        yield running


def paths(items: list[dict[str, object]], site: Site) -> dict[str, dict[str, object]]:
    return {str(item["url"]).removeprefix(site.url): item for item in items}


def test_a_page_becomes_markdown_without_what_stands_around_it(run: Run, site: Site) -> None:
    formats = ["markdown", "html", "raw_html", "links"]
    (page,) = run("pages", f"{site.url}/docs/", depth=0, params={"formats": formats}).items
    assert page["markdown"] == (
        f"# Set it up\n\nFirst **read** [more]({site.url}/docs/more?x=2).\n\nBuy\n\n"
        "| Key | Value |\n| --- | --- |\n| a\\|b | 1 |\n\n1. one\n   - inner\n2. two\n\n```\nx = 1\ny = 2\n```"
    )
    assert (page["title"], page["status"], page["error"], page["depth"]) == ("The handbook", 200, None, 0)
    assert page["links"] == [
        f"{site.url}/{path}" for path in ("docs/", "blog/news", "docs/more?x=1", "docs/more?x=2")
    ]
    assert page["html"].startswith("<main>")
    assert "Imprint" not in page["html"]
    assert "track()" in page["raw_html"]


def test_elements_are_chosen_and_left_out(run: Run, site: Site) -> None:
    (whole,) = run(
        "pages", f"{site.url}/docs/", depth=0, params={"main_content": False, "exclude_tags": [".ad"]}
    ).items
    assert "Imprint" in whole["markdown"]
    assert "Buy" not in whole["markdown"]
    (chosen,) = run("pages", f"{site.url}/docs/", depth=0, params={"include_tags": ["h1", "footer"]}).items
    assert chosen["markdown"] == "# Set it up\n\nImprint"


def test_a_crawl_stays_below_its_start_and_tells_of_each_page(run: Run, site: Site) -> None:
    params = {"below_start": True, "ignore_query": True, "sitemap": "include"}
    found = paths(run("pages", f"{site.url}/docs/", params=params).items, site)
    assert found.keys() == {"/docs/", "/docs/more", "/docs/gone", "/docs/data.json", "/docs/hidden"}
    assert (found["/docs/gone"]["status"], found["/docs/gone"]["error"]) == (404, "HTTP 404 Not Found")
    assert found["/docs/data.json"]["markdown"] == '{"a": 1}'
    only = paths(run("pages", site.url, params={"sitemap": "only"}).items, site)
    assert only.keys() == {"/docs/hidden", "/blog/old"}


def test_patterns_may_be_for_the_path_alone(run: Run, site: Site) -> None:
    params = {"include": ["^/blog"], "match": "path"}
    found = paths(run("pages", f"{site.url}/docs/", params=params).items, site)
    assert found.keys() == {"/docs/", "/blog/news"}


def test_what_is_no_page_says_so(run: Run, site: Site) -> None:
    (film,) = run("pages", f"{site.url}/docs/film", depth=0).items
    assert (film["content_type"], film["error"]) == ("video/mp4", "it is no page: video/mp4")
    assert "markdown" not in film


@pytest.mark.parametrize(
    ("spider", "params"),
    [
        ("seo", {}),
        ("extract", {"fields": {"title": "h1"}}),
        ("jobs", {"selectors": {"result": "main", "title": "h1"}}),
    ],
)
def test_other_spiders_give_the_page_of_an_item_as_well(
    run: Run, site: Site, spider: str, params: dict[str, object]
) -> None:
    (item,) = run(spider, f"{site.url}/docs/", depth=0, params={**params, "markdown": True}).items
    # a posting's own page is the one that it links to
    assert item["markdown"].startswith("More" if spider == "jobs" else "# Set it up\n")
    assert "markdown" not in run(spider, f"{site.url}/docs/", depth=0, params=params).items[0]


def test_an_item_has_its_bounds(run: Run, site: Site) -> None:
    links = "".join(f"<a href='/{number}/{'x' * 1900}'>{number}</a>" for number in range(3000))
    site.pages["/bounds"] = html(f"{links}<p>{'ü' * 2_000_000}</p>")
    formats = ["markdown", "html", "raw_html", "links"]
    (page,) = run("pages", f"{site.url}/bounds", depth=0, params={"formats": formats}).items
    sizes = [len(page[name].encode()) for name in formats[:3]] + [sum(map(len, page["links"]))]
    assert all(2_900_000 < size <= 3_000_000 for size in sizes), sizes


def test_code_keeps_its_white_space(run: Run, site: Site) -> None:
    site.pages["/code"] = html("<ul><li>so:<pre>def f():\n\n\n    return 1</pre></li></ul><pre>`````</pre>")
    (page,) = run("pages", f"{site.url}/code", depth=0).items
    inner = "- so:\n  ```\n  def f():\n  \n  \n      return 1\n  ```"
    assert page["markdown"] == f"{inner}\n\n``````\n`````\n``````"
