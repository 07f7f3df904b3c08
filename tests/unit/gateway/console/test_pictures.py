"""The pictures in the documentation: of every page, and small."""

from __future__ import annotations

from browser.console.pictures import FOLDER, KINDS, PAGE, PICTURES, WITHOUT, written

from gateway.application import create_app
from gateway.settings import Settings
from gateway.web.authentication import is_page
from gateway.web.description import scopes_of

#: Bytes of all pictures together.
MOST = 3_000_000


def test_every_page_has_pictures() -> None:
    pages = {path for _, path in map(str.split, scopes_of(create_app(Settings()).routes)) if is_page(path)}
    assert {one.route for one in PICTURES} | set(WITHOUT) == pages
    assert {path.name for path in FOLDER.iterdir()} == {
        f"{one.name}-{kind}.png" for one in PICTURES for kind in KINDS
    }


def test_the_documentation_shows_them_all() -> None:
    text = PAGE.read_text()
    assert text == written(text)


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST
