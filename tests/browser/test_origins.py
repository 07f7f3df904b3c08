"""What a real browser lets pages do with the gateway: its own, another origin's, and a node's that means no good."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest
from browser.chromium import new_tab
from forms import in_full
from integration.web.conftest import serve, settings
from integration.web.signed_in import anne, impatient, job, keys, own, sign_in
from integration.web.stand_in_node import PASSWORD, StandInNode, stand_in_node
from playwright.async_api import Route
from pymongo.database import Database
from stack import wait_until

from gateway.access.key_store import Issued, KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.nodes.store import NodeStore
from gateway.settings import Settings

__all__ = ["anne", "impatient", "job", "keys", "own", "serve", "settings", "sign_in"]

SIGN_IN = """key => fetch('/session', {
  method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify({key}),
}).then(answer => answer.json())"""
#: What the first event of a stream says.
FOLLOW = """url => new Promise((heard, failed) => {
  const source = new EventSource(url);
  source.addEventListener('status', event => { heard(JSON.parse(event.data).status); source.close(); });
  source.onerror = () => { if (source.readyState === 2) failed(new Error('refused')); };
})"""
OPEN = """url => new Promise(opened => {
  window.source = new EventSource(url);
  window.times = 0;
  source.onopen = () => { times += 1; opened(); };
})"""
#: How often it was open until it gave up for good.
GIVEN_UP = """() => new Promise(report => {
  source.onerror = () => { if (source.readyState === 2) report(times); };
})"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>app</title>")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base's parameter
        del format, args


@contextmanager
def other_origin() -> Iterator[str]:
    """With a page. A real server's: what a test hands the browser does not count as local, and may not call us."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


@pytest.fixture(scope="module")
def listed() -> Iterator[str]:
    with other_origin() as origin:
        yield origin


@pytest.fixture(scope="module")
def stranger() -> Iterator[str]:
    with other_origin() as origin:
        yield origin


@pytest.fixture(scope="module")
def own_settings(settings: Settings, listed: str) -> Settings:
    changes = {
        "mongo_uri": settings.mongo_uri.replace("/discoverybot", "/origins"),
        "gateway_cors_origins": listed,
        "scrapyd_password": PASSWORD,
    }
    return Settings.model_validate({**settings.model_dump(), **changes})


@pytest.fixture(scope="module")
def url(serve: Any, own_settings: Settings, keys: KeyStore) -> Iterator[str]:
    KeyIssue(keys).issue_first()
    with serve(own_settings) as client:
        yield str(client.base_url).rstrip("/")


@pytest.fixture
def node(own: Database[dict[str, Any]]) -> Iterator[StandInNode]:
    with stand_in_node() as running:
        said = {"max_slots": 1, "alive": (), "present": (), "beating_since": utc_now()}
        NodeStore(own).heartbeat("n1", url=running.url, **said)
        yield running


async def test_a_page_of_ours_follows_and_changes_with_the_cookie_it_cannot_read(
    url: str, anne: Issued, job: str
) -> None:
    async with new_tab() as tab:
        await tab.page.route("**/app", _blank)
        await tab.page.goto(f"{url}/app")
        view = await tab.page.evaluate(SIGN_IN, str(anne.token))
        assert view["user_id"] == "anne"
        assert await tab.page.evaluate("document.cookie") == ""
        assert await tab.page.evaluate(FOLLOW, f"/jobs/{job}/logs") == "running"
        cancel = "([job, headers]) => fetch(`/jobs/${job}/cancel`, {method: 'POST', headers}).then(it => it.status)"
        assert await tab.page.evaluate(cancel, [job, {}]) == 403
        assert await tab.page.evaluate(cancel, [job, {"X-CSRF-Token": view["csrf_token"]}]) == 200


@in_full("web/test_stream_ends.py")
async def test_event_source_gives_up_when_its_session_has_ended(
    url: str, anne: Issued, keys: KeyStore, job: str
) -> None:
    async with new_tab() as tab:
        await tab.page.route("**/app", _blank)
        await tab.page.goto(f"{url}/app")
        await tab.page.evaluate(SIGN_IN, str(anne.token))
        await tab.page.evaluate(OPEN, f"/jobs/{job}/logs")
        keys.revoke(anne.key.id)
        # it came back, was told 401, and has stopped by itself
        assert await asyncio.wait_for(tab.page.evaluate(GIVEN_UP), 90) == 1


async def test_a_listed_origins_page_calls_with_a_key_and_follows_with_a_stream_token(
    url: str, listed: str, anne: Issued, job: str
) -> None:
    async with new_tab() as tab:
        await tab.page.goto(f"{listed}/page")
        ask = """([url, key]) => fetch(url, {method: 'POST', headers: {Authorization: `Bearer ${key}`}}).then(
          async answer => [answer.status, answer.headers.get('X-Request-ID'), await answer.json()])"""
        token = await tab.page.evaluate(ask, [f"{url}/jobs/{job}/stream-token", str(anne.token)])
        assert token[0] == 200
        assert token[1]
        assert await tab.page.evaluate(FOLLOW, url + token[2]["url"]) == "running"
        refused = await tab.page.evaluate(ask, [f"{url}/jobs/{job}/stream-token", "db_no_key"])
        assert (refused[0], refused[2]["error"]["code"]) == (401, "key_invalid")


async def test_any_other_page_reads_nothing_and_changes_nothing(
    url: str, stranger: str, anne: Issued, job: str
) -> None:
    async with new_tab() as tab:
        await tab.page.route("**/app", _blank)
        await tab.page.goto(f"{url}/app")
        await tab.page.evaluate(SIGN_IN, str(anne.token))
        # the same site, as a browser sees it, on another port: it sends the cookie along
        await tab.page.goto(f"{stranger}/page")
        ask = "([url, how]) => fetch(url, how).then(() => 'answered', () => 'kept from it')"
        for path, how in (
            (f"/jobs/{job}", {"credentials": "include"}),
            (f"/jobs/{job}", {"headers": {"Authorization": f"Bearer {anne.token}"}}),
            (f"/jobs/{job}/cancel", {"method": "POST", "credentials": "include"}),
            (f"/jobs/{job}/cancel", {"method": "POST", "credentials": "include", "mode": "no-cors"}),
        ):
            assert await tab.page.evaluate(ask, [url + path, how]) == "kept from it"
    headers = {"Authorization": f"Bearer {anne.token}"}
    async with httpx2.AsyncClient(trust_env=False) as client:
        told = (await client.get(f"{url}/jobs/{job}", headers=headers)).json()
    assert told["status"] == "running"
    assert not told.get("cancel_requested_at")


@in_full("web/test_node_console.py")
async def test_a_nodes_page_is_browsed_and_cancels_but_cannot_act_as_ours(
    url: str, keys: KeyStore, node: StandInNode
) -> None:
    admin = KeyIssue(keys).issue("root", [Scope.ADMIN])
    async with new_tab() as tab:
        await tab.page.route("**/app", _blank)
        await tab.page.goto(f"{url}/app")
        await tab.page.evaluate(SIGN_IN, str(admin.token))
        await tab.page.goto(f"{url}/nodes/n1/scrapyd/")
        await tab.page.get_by_text("A node's page").click()
        await tab.page.get_by_role("link", name="Jobs").click()
        await tab.page.wait_for_url("**/nodes/n1/scrapyd/jobs")
        assert await tab.page.title() == "Scrapyd"
        await tab.page.get_by_role("button", name="Cancel").click()
        wait_until(lambda: node.cancelled, timeout=90)
        assert node.cancelled == [b"project=theirs&job=one"]
        await tab.page.wait_for_url("**/nodes/n1/scrapyd/jobs")
        # its other form, which would crawl in the admin's name, is not sent; Playwright would wait for where it leads
        asked = len(tab.asked)
        await tab.page.get_by_role("button", name="Crawl").click(no_wait_after=True)
        async with asyncio.timeout(90):
            while not any("form-action" in text for text in tab.complaints):  # noqa: ASYNC110 - a list of texts
                await asyncio.sleep(0.05)
        assert not [address for address in tab.asked[asked:] if address.endswith("/crawl")]
    # the session is what it was: no script of the node's has run
    assert not [address for address in tab.asked if address.endswith("/session")][1:]


async def _blank(route: Route) -> None:
    await route.fulfill(body="<!doctype html><title>app</title>", content_type="text/html")
