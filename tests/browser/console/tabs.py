"""A page in a browser, and what axe-core says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from axe_playwright_python.base import AXE_SCRIPT
from forms import FULL
from playwright.async_api import Page

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
DESK = {"viewport": {"width": 1280, "height": 800}}
_LOUD = {"error", "warning"}


class Tab:
    """A page, what it complains of (a violated policy is a complaint), and the addresses that it has asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda said: self.complaints.append(said.text) if said.type in _LOUD else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def expect_complaint(self, words: str) -> None:
        """Take a complaint that the test has provoked off the list: a refused call is one."""
        found = [text for text in self.complaints if words in text]
        assert found, self.complaints
        self.complaints = [text for text in self.complaints if words not in text]

    async def sign_in(self, key: object) -> None:
        await self.page.goto("/console/sign-in")
        await self.page.get_by_label("Key").fill(str(key))
        await self.page.keyboard.press("Enter")
        await self.page.wait_for_url(lambda url: "sign-in" not in url)


OpenTab = Callable[..., AbstractAsyncContextManager[Tab]]
Axe = Callable[[Tab], Awaitable[None]]
#: All rules, and in full of those the one that sees colours in the dark as well.
_RULES: dict[str, dict[str, list[str]]] = {"light": {}, **({"dark": {"runOnly": ["color-contrast"]}} if FULL else {})}
_VIOLATIONS = """async (rules) =>
  (await axe.run(document, {...rules, resultTypes: ['violations']})).violations.map(found =>
  `${found.id}: ${found.help}: ${found.nodes.map(node => node.html.slice(0, 200)).slice(0, 5).join('  ')}`)"""


async def check(tab: Tab) -> None:
    """Fail with what axe-core finds on the page; dark it finds nothing else but in its colours."""
    await tab.page.evaluate(AXE_SCRIPT)
    for scheme, rules in _RULES.items():
        await tab.page.emulate_media(color_scheme=scheme)
        found = await tab.page.evaluate(_VIOLATIONS, rules)
        assert found == [], (scheme, found)
    await tab.page.emulate_media(color_scheme="null")
