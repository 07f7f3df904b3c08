"""What a spider says of a page that is to be rendered. Imported by every spider, so without anything of a browser."""

from __future__ import annotations

from typing import Any, NamedTuple

#: Setting: whether the crawl renders pages at all; the add-on then puts in what that takes.
RENDER_PAGES = "RENDER_PAGES"
#: Key of a request's meta whose page is to be rendered; its value is an `Instructions`.
RENDER = "render"


class Instructions(NamedTuple):
    """What to do with a page before it is read."""

    #: CSS selector of an element to wait for.
    wait_for: str | None = None
    #: How often to scroll to its end; less often if nothing more comes.
    scroll: int = 0
    #: CSS selector of what to click on each time before it is scrolled, if it is there.
    click: str | None = None
    #: CSS selector and how many elements of it are enough: nothing more is asked for then.
    enough: tuple[str, int] | None = None


def render_meta(
    *,
    render: bool,
    wait_for: str | None,
    scroll: int,
    click: str | None = None,
    enough: tuple[str, int] | None = None,
) -> dict[str, Any]:
    """The meta of a request for a page."""
    return {RENDER: Instructions(wait_for, scroll, click, enough)} if render else {}
