"""The pictures in the documentation: of every page, and small."""

from __future__ import annotations

from browser.console.pictures import FOLDER, KINDS, PAGE, PICTURES, written

#: Bytes of all pictures together.
MOST = 3_000_000


def test_every_picture_is_there() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {
        f"{one.name}-{kind}.png" for one in PICTURES for kind in KINDS
    }


def test_the_documentation_shows_them_all() -> None:
    text = PAGE.read_text()
    assert text == written(text)


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST
