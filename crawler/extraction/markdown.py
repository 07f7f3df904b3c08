"""A page as Markdown: its text with headings, links, lists, tables and code, in one pass over its tree.

Characters that mean something in Markdown are not escaped. It takes linear time, whatever the page is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import urljoin, urlsplit

from lxml import etree
from parsel import Selector

#: Elements that hold no text of the page.
NO_TEXT = frozenset(
    {
        *("head", "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "canvas", "audio"),
        *("video", "dialog", "button", "input", "select", "textarea", "datalist", "form-control"),
    }
)
_around: Callable[[Any], Any] = etree.XPath(
    "//nav | //aside | //*[@role='navigation' or @role='banner' or @role='contentinfo' or @role='search' or "
    "@role='complementary'] | (//header | //footer)[not(ancestor::article or ancestor::main)]"
)
_mains: Callable[[Any], Any] = etree.XPath("//main | //*[@role='main']")
#: Maximum number of elements of a page that is converted to Markdown.
MAX_ELEMENTS = 50_000
#: Maximum number of levels of nesting. Below them only the text is kept, because each level of a list or quotation
#: indents its whole text again.
_DEEPEST = 60
_SPACE = re.compile(r"\s+")
_GAP = re.compile(r"[ \t]*\n(?:[ \t]*\n)+[ \t]*(?=\S)")
#: Placeholder of a piece of code, with the text before it on its line. Pages cannot contain NUL characters.
_CODE = re.compile("^([^\n\0]*)\0([0-9]+)\0", re.MULTILINE)
_IN_LINE = re.compile("\0([0-9]+)\0")
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_EMPHASIS = {
    "b": "**",
    "strong": "**",
    "i": "*",
    "em": "*",
    "code": "`",
    "kbd": "`",
    "samp": "`",
    "del": "~~",
    "s": "~~",
}
_BLOCKS = frozenset(
    {
        *(
            "address",
            "article",
            "aside",
            "body",
            "caption",
            "dd",
            "details",
            "div",
            "dl",
            "dt",
            "fieldset",
            "figcaption",
        ),
        *("figure", "footer", "form", "header", "html", "legend", "main", "nav", "p", "section", "summary"),
    }
)


def main_content(root: Any) -> Any:
    """The main content of a page: its `<main>` if it has exactly one, else the whole tree, without navigation,
    headers and footers. Changes the tree.
    """
    for element in _around(root):
        _drop(element)
    mains = _mains(root)
    return mains[0] if len(mains) == 1 else root


def _drop(element: Any) -> None:
    """Remove an element, but not the text after it."""
    if element.getparent() is not None:
        element.drop_tree()


def page_markdown(text: str, url: str) -> str | None:
    """A page's own text; `None` if the page has too many elements."""
    root = Selector(text, type="html").root
    return markdown_of(main_content(root), url) if is_small(root) else None


def is_small(root: Any) -> bool:
    """Whether the tree has few enough elements: each takes ten microseconds."""
    return sum(1 for _ in root.iter()) <= MAX_ELEMENTS


def markdown_of(root: Any, base: str) -> str:
    """The text of the tree below `root` as Markdown. Links and images are relative to `base`."""
    writer = _Writer(base)
    text = _GAP.sub("\n\n", writer.text(root, 0)).strip()
    return _CODE.sub(lambda found: writer.code(found[1], int(found[2])), text)


class _Writer:
    def __init__(self, base: str) -> None:
        self._base = base
        #: Pieces of code. They are inserted last, so that they keep their white space.
        self._codes: list[str] = []
        self._rules: dict[str, Callable[[Any, int], str]] = {
            "a": self._link, "img": self._image, "pre": self._code, "blockquote": self._quotation,
            "table": self._table, "ul": self._list, "ol": self._list,
            "br": lambda *_: "\n", "hr": lambda *_: "\n\n---\n\n",
        }  # fmt: skip

    def text(self, element: Any, depth: int) -> str:
        """The element itself, without the text after it."""
        tag = element.tag
        if not isinstance(tag, str) or tag in NO_TEXT or element.get("hidden") is not None:
            return ""
        if depth > _DEEPEST:
            return _squeezed("".join(element.itertext()))
        if rule := self._rules.get(tag):
            return rule(element, depth)
        inner = self._inner(element, depth)
        if tag in _HEADINGS:
            return f"\n\n{_HEADINGS[tag]}{line}\n\n" if (line := self._line(inner)) else ""
        if tag in _EMPHASIS and (line := inner.strip()) and "\n" not in line:
            return inner.replace(line, f"{_EMPHASIS[tag]}{line}{_EMPHASIS[tag]}", 1)
        return f"\n\n{inner.strip()}\n\n" if tag in _BLOCKS else inner

    def _inner(self, element: Any, depth: int) -> str:
        parts = [_squeezed(element.text)]
        for child in element:
            parts += (self.text(child, depth + 1), _squeezed(child.tail))
        return "".join(parts)

    def _url(self, written: str | None) -> str | None:
        with suppress(ValueError):
            url = urljoin(self._base, (written or "").strip())
            return url.replace(" ", "%20").replace(")", "%29") if urlsplit(url).scheme in {"http", "https"} else None
        return None

    def _link(self, element: Any, depth: int) -> str:
        inner = self._inner(element, depth)
        url, line = self._url(element.get("href")), self._line(inner)
        return f"[{line}]({url})" if element.get("href") and url and line else inner

    def _image(self, element: Any, _: int) -> str:
        url = self._url(element.get("src")) if element.get("src") else None
        return f"![{_squeezed(element.get('alt') or '').strip()}]({url})" if url else ""

    def _line(self, text: str) -> str:
        """The text on one line, with the code in it."""
        return _squeezed(_IN_LINE.sub(lambda found: f"`{self._codes[int(found[1])]}`", text)).strip()

    def _code(self, element: Any, _: int) -> str:
        text = "".join(element.itertext()).strip("\n")
        self._codes.append(text)
        return f"\n\n\0{len(self._codes) - 1}\0\n\n" if text.strip() else ""

    def code(self, before: str, number: int) -> str:
        """The piece of code with this number, after `before`, the text in front of it on its line."""
        text = self._codes[number]
        # longer than any fence in the code, so that the page cannot end the block
        fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
        margin = re.sub(r"[^>]", " ", before)
        return before + f"\n{margin}".join([fence, *text.split("\n"), fence])

    def _quotation(self, element: Any, depth: int) -> str:
        lines = _GAP.sub("\n\n", self._inner(element, depth)).strip().split("\n")
        return "\n\n" + "\n".join(f"> {line}".rstrip() for line in lines) + "\n\n" if any(lines) else ""

    def _list(self, element: Any, depth: int) -> str:
        entries: list[str] = []
        for child in element:
            inner = self._inner if child.tag == "li" else self.text
            if text := _GAP.sub("\n\n", inner(child, depth + 1)).strip():
                mark = f"{len(entries) + 1}. " if element.tag == "ol" else "- "
                # indent the other lines of an entry to where its text begins
                entries.append(mark + text.replace("\n\n", "\n").replace("\n", "\n" + " " * len(mark)))
        return "\n\n" + "\n".join(entries) + "\n\n" if entries else ""

    def _table(self, element: Any, depth: int) -> str:
        rows = [
            [self._line(self._inner(cell, depth + 3)).replace("|", "\\|") for cell in row if cell.tag in {"td", "th"}]
            for row in _rows(element)
        ]
        rows = [row for row in rows if row]
        if not rows:
            return self._inner(element, depth)
        if max(map(len, rows)) == 1:  # a table of one column is there for layout
            return "\n\n" + "\n\n".join(row[0] for row in rows) + "\n\n"
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, "|" + " --- |" * len(rows[0]))
        return "\n\n" + "\n".join(lines) + "\n\n"


def _rows(table: Any) -> Iterable[Any]:
    """The rows of the table, but not those of tables in it."""
    for child in table:
        if child.tag == "tr":
            yield child
        elif child.tag in {"thead", "tbody", "tfoot"}:
            yield from (row for row in child if row.tag == "tr")


def _squeezed(text: str | None) -> str:
    return _SPACE.sub(" ", text) if text else ""
