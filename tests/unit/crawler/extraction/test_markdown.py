"""What a page's elements become, and that no page takes long."""

from __future__ import annotations

import time

import pytest
from parsel import Selector

from crawler.extraction.markdown import is_small, main_content, markdown_of, page_markdown

BASE = "https://example.com/docs/"


def made(html: str) -> str:
    return markdown_of(Selector(html, type="html").root, BASE)


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<h1>A <b>bold</b>\n title</h1>text", "# A **bold** title\n\ntext"),
        ("<p>one<i> two</i> three<br>four</p>", "one *two* three\nfour"),
        ("<a href='../a b(c)'>to\n there</a>", "[to there](https://example.com/a%20b(c%29)"),
        ("<a href='javascript:x()'>no</a> <a>none</a> <a href='http://['>odd</a>", "no none odd"),
        ("<img src=i.png alt='a  b'><img src='data:image/png;base64,xx'>", "![a b](https://example.com/docs/i.png)"),
        ("<ol><li>a</li><li><p>b</p><p>c</p></li></ol>", "1. a\n2. b\n   c"),
        ("<blockquote><p>a</p><p>b</p></blockquote>", "> a\n>\n> b"),
        ("<table><tr><td>only</td></tr><tr><td>for looks</td></tr></table>", "only\n\nfor looks"),
        (
            "<table><tr><th>a<th>b</tr><tr><td>1|2<td><pre>x\ny</pre></table>",
            "| a | b |\n| --- | --- |\n| 1\\|2 | `x y` |",
        ),
        ("<pre>a\n\n\n  b</pre>", "```\na\n\n\n  b\n```"),
        ("<pre>```</pre>", "````\n```\n````"),
        ("<p>seen</p><script>x</script><style>y</style><p hidden>z</p><!-- c -->", "seen"),
        ("", ""),
    ],
)
def test_elements_become_what_they_mean(html: str, expected: str) -> None:
    assert made(html) == expected


def test_what_stands_around_a_page_is_left_out_and_its_heading_is_not() -> None:
    html = (
        "<header>top</header><nav>menu</nav><div role=search>find</div>"
        "<article><header><h1>Title</h1></header>text</article> tail<footer>imprint</footer>"
    )
    assert page_markdown(html, BASE) == "# Title\n\ntext\n\ntail"
    two = Selector("<main>a</main><main>b</main>", type="html").root
    assert markdown_of(main_content(two), BASE) == "a\n\nb"


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * 50_000 + "x",
        "<ul><li>" * 5000 + "x",
        "<blockquote>" * 250 + "x" * 500_000,
        "<b>x" * 30_000,
        "<p> </p>" * 20_000,
        "<br> " * 40_000,
        "\n \n" * 300_000,
        "<pre>" + "`" * 500_000,
        "<table>" + "<tr><td>a</td></tr>" * 10_000 + "<tr>" + "<td>x</td>" * 10_000 + "</tr>",
        "<table><tr><td>" * 200 + "z" * 100_000,
        "<a href=/>" * 200 + "y" * 200_000,
    ],
    ids=lambda html: html[:12],
)
def test_no_page_takes_long(html: str) -> None:
    root = Selector(html, type="html").root
    assert is_small(root)
    began = time.process_time()
    markdown_of(main_content(root), BASE)
    assert time.process_time() - began < 3


def test_a_page_with_too_many_elements_is_left_alone() -> None:
    assert page_markdown("<i></i>" * 60_000, BASE) is None
