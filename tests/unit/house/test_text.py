"""Nothing is left behind that only its author could use."""

from __future__ import annotations

import re
import tokenize
from pathlib import Path

import pytest
from unit.house.sources import markdown_files, python_files, relative, text_files

#: An absolute path of somebody's machine. A URL's path or one inside a container's own tree is none.
MACHINE_PATH = re.compile(r"(?<![\w.:/}-])/(?:work|root|home|Users|mnt/[a-z])/[\w.]")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME)\b")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    places = [
        f"{relative(path)}:{number} {line.strip()}"
        for path in (*python_files(), *text_files())
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert not places


@pytest.mark.parametrize(
    ("line", "names_one"),
    [
        ("cd /" + "home/alice/discoverybot", True),
        ('path = "/' + 'work/main"', True),
        ("https://example.com/home/page.html", False),
        ("see docs/home/page.html", False),
    ],
)
def test_a_machine_path_is_told_from_a_url(line: str, names_one: bool) -> None:  # noqa: FBT001 - a parameter
    assert bool(MACHINE_PATH.search(line)) == names_one


def test_no_comment_puts_work_off() -> None:
    assert not [place for path in python_files() for place in _unfinished(path)]


def _unfinished(path: Path) -> list[str]:
    if not UNFINISHED.search(path.read_text(encoding="utf-8")):
        return []
    with path.open("rb") as file:
        comments = [token for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT]
    return [f"{relative(path)}:{token.start[0]}" for token in comments if UNFINISHED.search(token.string)]


def test_every_relative_link_leads_somewhere() -> None:
    links = [(page, link) for page in markdown_files() for link in LINK.findall(page.read_text(encoding="utf-8"))]
    assert not [(page, link) for page, link in links if "://" not in link and not _leads_somewhere(page, link)]


def _leads_somewhere(page: Path, link: str) -> bool:
    file, _, anchor = link.partition("#")
    target = (page.parent / file).resolve() if file else page
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings: lower case, punctuation dropped, spaces to hyphens."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
