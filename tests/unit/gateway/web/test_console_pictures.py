"""The pictures in the documentation: of every page, and small."""

from __future__ import annotations

from browser.console.pictures import FOLDER, KINDS, PAGE, PICTURES, WITHOUT, written

from gateway.settings import Settings
from gateway.web.app import create_app
from gateway.web.authentication import is_page
from gateway.web.authorisation import OPEN, RULES

#: Bytes of all pictures together.
MOST = 3_000_000


def test_every_page_has_pictures() -> None:
    create_app(Settings())
    pages = {path for path in (rule.split()[1] for rule in (*RULES, *OPEN)) if is_page(path)}
    assert {one.route for one in PICTURES} | set(WITHOUT) == pages
    assert {path.name for path in FOLDER.iterdir()} == {
        f"{one.name}-{kind}.png" for one in PICTURES for kind in KINDS
    }


def test_the_documentation_shows_them_all() -> None:
    text = PAGE.read_text()
    assert text == written(text)


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST
