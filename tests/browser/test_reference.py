"""The API reference in a real browser, under the policy that it is sent with."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
import uvicorn
from browser.chromium import new_tab
from forms import in_full
from stack import wait_until

from gateway.application import create_app
from gateway.settings import Settings


@contextmanager
def serving(settings: Settings) -> Iterator[str]:
    """The gateway's address. Without its lifespan: no store is asked."""
    config = uvicorn.Config(create_app(settings), port=0, log_config=None, ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started, what="the gateway")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Settings()) as address:
        yield address


@in_full("its policy, in the next test")
@pytest.mark.parametrize("path", ["/docs", "/redoc"])
async def test_the_page_is_drawn_and_breaks_no_policy(url: str, path: str) -> None:
    async with new_tab() as tab:
        await tab.page.goto(url + path)
        # both pages show a route only after their scripts have fetched the API's description
        await tab.page.get_by_text("/crawl", exact=True).first.wait_for(timeout=90_000)
        await tab.page.wait_for_load_state("networkidle")
        assert tab.complaints == []
        hosts = {urlsplit(address.removeprefix("blob:")).netloc for address in tab.asked if "data:" not in address}
        assert hosts == {urlsplit(url).netloc}


async def test_a_script_that_got_into_the_page_does_not_run(url: str) -> None:
    async with new_tab() as tab:
        await tab.page.goto(f"{url}/docs")
        await tab.page.evaluate(
            "() => { const it = document.createElement('script'); it.text = 'window.ran = true';"
            " document.body.append(it); }"
        )
        assert await tab.page.evaluate("window.ran") is None
        assert "Content Security Policy" in tab.complaints[-1]
