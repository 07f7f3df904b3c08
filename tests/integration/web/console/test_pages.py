"""Pages and files as a browser gets them."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from integration.web.signed_in import SignIn, anne, impatient, keys, own, own_settings, sign_in, url
from pymongo.database import Database

from gateway.access.key_store import Issued, KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.console.static_files import POLICY, STATIC

__all__ = ["anne", "impatient", "keys", "own", "own_settings", "sign_in", "url"]

HTML = {"Accept": "text/html,*/*;q=0.8"}


def get(client: httpx2.Client, path: str, **headers: str) -> httpx2.Response:
    return client.get(path, headers={**HTML, **headers})


def test_a_page_is_html_under_a_strict_policy_and_no_copy_is_kept(gateway: httpx2.Client) -> None:
    answer = get(gateway, "/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"


def test_a_page_is_compressed_unless_another_origin_has_asked_for_it(gateway: httpx2.Client) -> None:
    packed = get(gateway, "/console/crawl")
    assert packed.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["vary"]
    assert int(packed.headers["content-length"]) < len(packed.content) / 3
    assert get(gateway, "/console/crawl", **{"Sec-Fetch-Site": "same-origin"}).headers["content-encoding"] == "gzip"
    others = ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Accept-Encoding": "identity"})
    for headers in others:
        plain = get(gateway, "/console/crawl", **headers)
        assert "content-encoding" not in plain.headers
        assert plain.content == packed.content


def test_the_overview_shows_an_upgrade_that_was_left_halfway(
    gateway: httpx2.Client, database: Database[dict[str, Any]]
) -> None:
    database["heartbeats"].update_one({"_id": "worker:left:1"}, {"$set": {"at": utc_now()}}, upsert=True)
    try:
        told = gateway.get("/health").json()["checks"]["versions"]
        page = unescape(get(gateway, "/").text).replace("<code>", "`").replace("</code>", "`")
        assert "1 worker (0.1.0)" in told["message"]
        assert f"<bdi>{told['message']}</bdi>" in page
        assert f"Next step: <bdi>{told['todo']}</bdi>" in page
    finally:
        database["heartbeats"].delete_one({"_id": "worker:left:1"})
    assert "1 worker (0.1.0)" not in get(gateway, "/").text


def test_files_are_kept_for_ever_under_an_address_that_changes_with_them(gateway: httpx2.Client) -> None:
    found = re.findall(r'(?:src|href)="(/console/static/[^"#]+)', get(gateway, "/").text)
    assert len(set(found)) > 3
    for address in found:
        answer = gateway.get(address)
        assert answer.status_code == 200, address
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-encoding"] == "gzip"
        # a worker keeps to the policy of its own script
        assert answer.headers["content-security-policy"] == POLICY
    plain = gateway.get(found[0], headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == gateway.get(found[0]).content


def test_a_page_of_an_older_version_gets_its_files_and_keeps_none(gateway: httpx2.Client) -> None:
    answer = gateway.get("/console/static/older/console.css")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")
    for name in ("no-such.js", "../pages.py", "%2e%2e/pages.py", "js"):
        assert gateway.get(f"/console/static/{STATIC.version}/{name}").status_code == 404


def test_what_is_not_there_is_a_page_for_browsers_and_json_for_programs(gateway: httpx2.Client) -> None:
    page = get(gateway, "/console/no-such-page")
    assert page.status_code == 404
    assert page.headers["content-type"].startswith("text/html")
    assert "<h1>Not Found</h1>" in page.text
    assert page.headers["x-request-id"] in page.text
    assert gateway.get("/console/no-such-page").json()["error"]["code"] == "not_found"
    # nothing but pages is turned into pages
    assert get(gateway, "/jobs/nothing").json()["error"]["code"] == "job_not_found"


def test_a_browser_without_a_session_is_led_to_the_form_and_back(url: str, sign_in: SignIn, anne: Issued) -> None:
    with httpx2.Client(base_url=url, trust_env=False) as stranger:
        answer = get(stranger, "/?x=1")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/console/sign-in?next=%2F%3Fx%3D1"
        # the page that asks for a part of itself is loaded as a whole, and led there
        part = get(stranger, "/", **{"HX-Request": "true"})
        assert (part.status_code, part.content, part.headers["hx-refresh"]) == (401, b"", "true")
        assert stranger.get("/").json()["error"]["code"] == "key_required"
        assert get(stranger, "/console/sign-in").status_code == 200
    assert get(sign_in(anne).http, "/").status_code == 200


@pytest.mark.parametrize(
    ("given", "leads_to"),
    [
        ("/console/jobs?status=error", "/console/jobs?status=error"),
        ("//evil.example/", "/"),
        ("https://evil.example/", "/"),
        ("/console/\\evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/docs", "/"),
        # it is an address, and nothing in it is an order
        ("/console/jobs?a=|goto:https://evil.example/?t={csrf_token}",) * 2,
    ],
)
def test_the_form_leads_to_pages_of_ours_only(url: str, given: str, leads_to: str) -> None:
    with httpx2.Client(base_url=url, trust_env=False) as stranger:
        text = stranger.get("/console/sign-in", params={"next": given}).text
    assert f'data-then="goto" data-target="{leads_to}"' in unescape(text)
    # nobody is signed in here, and so nobody looks as another one
    with httpx2.Client(base_url=url, trust_env=False) as stranger:
        assert "Viewing as" not in stranger.get("/console/sign-in", params={"user_id": "anne"}).text


@pytest.mark.parametrize(
    ("week", "status"),
    [("0001-01-01", 422), ("9999-12-31", 422), ("2000-01-01", 200), ("2999-12-31", 200)],
)
def test_a_week_at_an_end_of_the_calendar_is_refused(gateway: httpx2.Client, week: str, status: int) -> None:
    for zone in ("UTC", "own", "America/New_York"):
        assert get(gateway, f"/console/schedules/week?week={week}&zone={zone}").status_code == status


def test_who_may_not_see_a_page_is_told_so_in_a_page(sign_in: SignIn, keys: KeyStore, anne: Issued) -> None:
    admin = sign_in(KeyIssue(keys).issue("root", [Scope.ADMIN])).http
    as_anne = get(admin, "/").text
    assert 'href="/console/nodes"' in as_anne
    # an admin who looks as a user has the navigation of that user, on each page
    as_anne = get(admin, "/?user_id=anne").text
    assert 'href="/console/nodes' not in as_anne
    assert 'href="/console/jobs?user_id=anne"' in as_anne
    assert "anne" in as_anne
    assert get(admin, "/console/jobs?user_id=anne&user=bert").status_code == 403
    # who filters by a user stays what it is, and so does a user who asks to look as another one
    by_anne = get(admin, "/console/jobs?user=anne").text
    assert 'href="/console/nodes"' in by_anne
    assert "data-offered" in by_anne
    assert "data-offered" not in get(admin, "/console/jobs?user=root").text
    assert get(sign_in(anne).http, "/console/jobs?user=bert").status_code == 403
    assert "Viewing as" not in get(sign_in(anne).http, "/?user_id=bert").text


def test_a_page_of_another_session_gets_nothing(sign_in: SignIn, anne: Issued) -> None:
    browser = sign_in(anne).http
    found = re.search(r'<meta name="session" content="(\w+)">', get(browser, "/").text)
    assert found
    events = f"/events?job_id={'0' * 32}"
    for session, allowed in ((found[1], True), ("0" * 24, False), ("", False)):
        named = {"X-Session": session}
        assert browser.get("/jobs", headers=named).status_code == (200 if allowed else 401)
        assert get(browser, "/console/jobs", **named).status_code == (200 if allowed else 303)
        # such a job is not there, which nobody is told who may not ask
        assert browser.get(f"{events}&session={quote(session)}").status_code == (404 if allowed else 401)
    assert browser.get("/jobs").status_code == 200


def test_the_token_against_forgery_is_that_of_the_session(sign_in: SignIn, anne: Issued) -> None:
    browser: Any = sign_in(anne)
    assert f'<meta name="csrf-token" content="{browser.view["csrf_token"]}">' in get(browser.http, "/").text


@pytest.mark.parametrize(
    ("typed", "there"), [("/console/", "/"), ("/console/errors/", "/console/errors"), ("/console/nodes/?a=b", None)]
)
def test_a_slash_at_the_end_of_an_address_does_no_harm(gateway: httpx2.Client, typed: str, there: str | None) -> None:
    answer = get(gateway, typed)
    assert (answer.status_code, answer.headers["location"]) == (307, there or "/console/nodes?a=b")
    assert get(gateway, "/console/nowhere/").headers["location"] == "/console/nowhere"
    assert get(gateway, "/console/nowhere").status_code == 404
