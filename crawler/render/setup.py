"""How spiders ask for rendered pages, and what the add-on then adds to a crawl.

Every spider imports this module, so it must not import a browser's packages.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy.utils.misc import load_object

from crawler.setting_names import RENDER_PAGES

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings


#: Key in the meta of a request whose page is to be rendered; the value is an `Instructions`.
RENDER = "render"


class Instructions(NamedTuple):
    """What to do with a page before it is read."""

    #: CSS selector of an element to wait for.
    wait_for: str | None = None
    #: How often to scroll to the page's end; less often if nothing more is loaded.
    scroll: int = 0
    #: CSS selector of an element to click on before each scrolling, if it is there.
    click: str | None = None
    #: CSS selector and a number: scrolling ends once this many elements match.
    enough: tuple[str, int] | None = None


def render_meta(
    *,
    render: bool,
    wait_for: str | None,
    scroll: int,
    click: str | None = None,
    enough: tuple[str, int] | None = None,
) -> dict[str, Any]:
    """The meta with which a request's page is rendered; empty without `render`."""
    return {RENDER: Instructions(wait_for, scroll, click, enough)} if render else {}


# --- what the add-on adds to a crawl that renders pages

logger = logging.getLogger(__name__)

_FORCED = "cmdline"
_NO_PLAYWRIGHT = (
    "pages cannot be rendered here: scrapy-playwright is not installed. Install discoverybot[render] on the node, or "
    "add scrapy-playwright to the requirements of a project of yours"
)
_PLAYWRIGHTS = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"
#: Other values of these settings would bypass the node's browser or its proxy.
_LOCKED = {
    "PLAYWRIGHT_CDP_URL": None,
    "PLAYWRIGHT_CONNECT_URL": None,
    "PLAYWRIGHT_BROWSER_PROVIDER": None,
    "PLAYWRIGHT_BROWSER_TYPE": "chromium",
}
#: Keeps scrapy-playwright from changing the headers of the requests that the browser makes for a page.
_OWN = {"PLAYWRIGHT_PROCESS_REQUEST_HEADERS": None}


def has_playwright() -> bool:
    """Whether Playwright is installed. The extra `render` installs it on a node."""
    return find_spec("scrapy_playwright") is not None


def use_browser(settings: BaseSettings) -> None:
    """Add what a crawl of our own project needs to render pages. Raises `ImportError` if the node lacks it."""
    if settings.getbool(RENDER_PAGES):
        if not has_playwright():
            raise ImportError(_NO_PLAYWRIGHT)
        settings.setdict(_OWN, priority=_FORCED)
        # our own log has one line about each failed page
        logging.getLogger("scrapy-playwright").setLevel(logging.ERROR)
        settings.set_in_component_priority_dict(
            "DOWNLOADER_MIDDLEWARES", load_object("crawler.render.renderer.RenderPages"), 540
        )
        _add_renderer(settings)


def browser_handler(settings: BaseSettings, handler: Any) -> Any:
    """Our handler for a project that has chosen scrapy-playwright's; `None` for other projects. Raises `ImportError`
    if the project has chosen it and it is not installed.
    """
    if handler == _PLAYWRIGHTS and not has_playwright():
        raise ImportError(_NO_PLAYWRIGHT)
    if not _is_playwrights(handler):
        return None
    try:
        rendering = load_object("crawler.render.renderer.RenderingDownloadHandler")
    except ImportError as error:  # in a project's own Python
        logger.warning("Pages are not rendered: add %s to the project's requirements", error.name)
        return None
    _add_renderer(settings)
    return rendering


def _is_playwrights(handler: Any) -> bool:
    if handler is None or not has_playwright():
        return False
    if isinstance(handler, str) and handler != _PLAYWRIGHTS and handler.startswith("scrapy."):
        return False
    try:
        chosen = load_object(handler)
    except (ImportError, ValueError, NameError):
        return False
    names = (f"{base.__module__}.{base.__qualname__}" for base in getattr(chosen, "__mro__", ()))
    return _PLAYWRIGHTS in names


def _add_renderer(settings: BaseSettings) -> None:
    for name, value in _LOCKED.items():
        if settings.get(name) not in (None, value):
            logger.warning("%s is not used: the browser is this node's, behind its proxy", name)
        settings.set(name, value, priority=_FORCED)
    settings.set_in_component_priority_dict("EXTENSIONS", load_object("crawler.render.renderer.Renderer"), 890)
