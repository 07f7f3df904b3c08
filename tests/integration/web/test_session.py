"""Sessions of browsers: what they are made from, how long they last, and why no other page can use them."""

from __future__ import annotations

import hmac
from datetime import timedelta
from http.cookies import SimpleCookie
from typing import Any

import httpx2
import pytest
from integration.web.board import Serve, problem
from integration.web.signed_in import (
    LISTED,
    PATIENCE,
    SignIn,
    anne,
    impatient,
    job,
    keys,
    own,
    own_settings,
    sign_in,
    url,
)
from pydantic import SecretStr
from pymongo.database import Database
from stack import wait_until

from gateway.access.key_store import Issued, KeyIssue, KeyStore
from gateway.access.keys import Scope, Seal
from gateway.clock import utc_now
from gateway.settings import Settings

__all__ = ["anne", "impatient", "job", "keys", "own", "own_settings", "sign_in", "url"]


def test_a_key_is_changed_for_a_cookie_that_scripts_cannot_read(url: str, anne: Issued) -> None:
    in_header = {"Authorization": f"Bearer {anne.token}"}
    with httpx2.Client(base_url=url, trust_env=False) as http:
        for shown in ({"json": {"key": str(anne.token)}}, {"headers": in_header}):
            answer = http.post("/session", **shown)  # type: ignore[arg-type]  # either of the two
            assert answer.status_code == 200, answer.text
            cookie = answer.headers["set-cookie"]
            assert cookie.startswith("discoverybot_session=cs_")
            assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43199"} <= set(
                cookie.replace("43200", "43199").split("; ")
            )
            assert "Secure" not in cookie
            assert anne.token.secret not in cookie
            assert anne.key.sha256 not in answer.text
            view = answer.json()
            assert (view["user_id"], view["key_id"]) == ("anne", anne.key.id)
            assert view["scopes"] == ["read", "agent", "crawl"]
            assert answer.headers["cache-control"] == "no-store"
            http.cookies.clear()


@pytest.mark.parametrize("told", [{"X-Forwarded-Proto": "https"}, {"Origin": "https://{host}"}])
def test_over_https_the_cookie_is_for_https_alone(url: str, anne: Issued, told: dict[str, str]) -> None:
    host = url.partition("://")[2].rstrip("/")
    headers = {name: value.format(host=host) for name, value in told.items()}
    with httpx2.Client(base_url=url, trust_env=False) as http:
        answer = http.post("/session", json={"key": str(anne.token)}, headers=headers)
        cookie = SimpleCookie(answer.headers["set-cookie"])["__Host-discoverybot_session"]
        assert cookie["secure"]
        assert (cookie["path"], cookie["domain"]) == ("/", "")
        sent = {"Cookie": f"__Host-discoverybot_session={cookie.value}"}
        assert http.get("/session", headers=sent).status_code == 200


def test_it_is_as_good_as_the_key_and_says_whose_it_is(sign_in: SignIn, anne: Issued, job: str) -> None:
    browser = sign_in(anne)
    assert browser.http.get("/session").json() == browser.view
    assert browser.http.get(f"/jobs/{job}").status_code == 200
    assert browser.http.get("/jobs").is_success
    assert browser.http.get(f"/jobs/{job}/items", params={"format": "csv"}).is_success
    assert problem(browser.http.get("/metrics")) == (403, "scope_missing")
    stranger = sign_in(anne)
    assert stranger.view["csrf_token"] != browser.view["csrf_token"]


def test_whoever_sends_a_key_means_it(sign_in: SignIn, anne: Issued, keys: KeyStore) -> None:
    browser = sign_in(anne)
    bert = {"Authorization": f"Bearer {KeyIssue(keys).issue('bert', [Scope.READ]).token}"}
    told = browser.http.get("/session", headers=bert).json()
    assert (told["user_id"], told["csrf_token"]) == ("bert", None)
    assert browser.http.get("/session", headers={"Authorization": "Bearer db_a_b"}).status_code == 401


def test_what_the_database_holds_signs_no_session(
    url: str, sign_in: SignIn, anne: Issued, own: Database[dict[str, Any]]
) -> None:
    (name,) = sign_in(anne).http.cookies.keys()
    document = own["keys"].find_one({"_id": anne.key.id}) or {}
    identity, expires = "0" * 24, int(utc_now().timestamp()) + 3600
    for secret in map(str, [*document, *document.values()]):
        signed = Seal(secret).sign(anne.key, "session", identity, expires)
        of_old = hmac.new(secret.encode(), f"session:{identity}:{expires}".encode(), "sha256").hexdigest()
        for signature in (signed, of_old):
            forged = {"Cookie": f"{name}=cs_{anne.key.id}_{identity}_{expires}_{signature}"}
            assert httpx2.get(f"{url}/session", headers=forged, trust_env=False).status_code == 401


def test_gateways_with_one_signing_key_know_each_others_sessions(
    serve: Serve, sign_in: SignIn, anne: Issued, own_settings: Settings
) -> None:
    ((name, cookie),) = sign_in(anne).http.cookies.items()
    for update, status in (({}, 200), ({"gateway_signing_key": SecretStr("another" * 6)}, 401)):
        with serve(own_settings.model_copy(update=update)) as gateway:
            assert gateway.get("/session", headers={"Cookie": f"{name}={cookie}"}).status_code == status


@pytest.mark.parametrize("wrong", [None, {"key": "db_first_wrong"}, {"key": "no key"}])
def test_without_a_good_key_nobody_is_signed_in(url: str, wrong: dict[str, str] | None) -> None:
    answer = httpx2.post(f"{url}/session", json=wrong, trust_env=False)
    assert problem(answer) == (401, "key_invalid" if wrong else "key_required")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert "set-cookie" not in answer.headers
    assert problem(httpx2.get(f"{url}/session", trust_env=False)) == (401, "key_required")


def test_while_there_are_no_keys_nobody_needs_a_session(gateway: httpx2.Client) -> None:
    assert problem(gateway.post("/session", json={"key": "db_a_b"})) == (409, "conflict")
    told = gateway.get("/session").json()
    assert (told["user_id"], told["scopes"], told["csrf_token"]) == (
        None,
        ["metrics", "read", "read_all", "agent", "crawl", "admin"],
        None,
    )
    assert gateway.delete("/session").status_code == 204


def test_to_change_something_a_page_must_know_the_csrf_token(sign_in: SignIn, anne: Issued, job: str) -> None:
    browser, other = sign_in(anne), sign_in(anne)
    cancel = f"/jobs/{job}/cancel"
    for wrong in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "0" * 64}, other.csrf):
        assert problem(browser.http.post(cancel, headers=wrong)) == (403, "csrf_token_wrong")
        assert problem(browser.http.delete("/session", headers=wrong)) == (403, "csrf_token_wrong")
    assert browser.http.post(cancel, headers=browser.csrf).is_success


@pytest.mark.parametrize(
    "told",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": LISTED},
    ],
)
def test_another_origins_page_changes_nothing_and_signs_nobody_in(
    sign_in: SignIn, anne: Issued, job: str, told: dict[str, str]
) -> None:
    browser = sign_in(anne)
    assert browser.http.post(f"/jobs/{job}/cancel", headers=browser.csrf | told).status_code == 403
    shown = {"key": str(anne.token)}
    assert browser.http.post("/session", json=shown, headers=told).status_code == 403
    assert browser.http.post(
        f"/jobs/{job}/cancel", headers=browser.csrf | {"Sec-Fetch-Site": "same-origin"}
    ).is_success


def test_a_session_that_was_ended_is_worthless_to_whoever_kept_a_copy(
    serve: Serve, own_settings: Settings, sign_in: SignIn, anne: Issued
) -> None:
    browser = sign_in(anne)
    copy = {"Cookie": f"discoverybot_session={browser.http.cookies['discoverybot_session']}"}
    with serve(own_settings) as elsewhere:
        assert elsewhere.get("/session", headers=copy).is_success
        answer = browser.http.delete("/session", headers=browser.csrf)
        assert answer.status_code == 204
        assert not browser.http.cookies
        assert problem(browser.http.get("/session", headers=copy)) == (401, "key_invalid")
        # another process notices the sign-out within seconds
        wait_until(lambda: elsewhere.get("/session", headers=copy).status_code == 401, timeout=PATIENCE)
    assert sign_in(anne).http.get("/session").is_success


def test_a_session_whose_cookie_is_replaced_ends(sign_in: SignIn, anne: Issued, url: str) -> None:
    browser = sign_in(anne)
    copy = dict(browser.http.cookies)
    answer = browser.http.post("/session", json={"key": str(anne.token)})
    assert answer.status_code == 200, answer.text
    assert browser.http.get("/jobs").status_code == 200
    with httpx2.Client(base_url=url, cookies=copy, timeout=PATIENCE, trust_env=False) as thief:
        assert thief.get("/jobs").status_code == 401
    # a forged cookie does not prevent signing in
    forged = {name: f"{cookie[:-1]}x" for name, cookie in copy.items()}
    with httpx2.Client(base_url=url, cookies=forged, timeout=PATIENCE, trust_env=False) as other:
        assert other.post("/session", json={"key": str(anne.token)}).status_code == 200


def test_a_session_ends_with_its_key(sign_in: SignIn, anne: Issued, keys: KeyStore) -> None:
    browser = sign_in(anne)
    keys.revoke(anne.key.id)
    wait_until(lambda: browser.http.get("/session").status_code == 401, timeout=PATIENCE)
    expiry = utc_now() + timedelta(hours=1)
    brief = sign_in(KeyIssue(keys).issue("anne", [Scope.READ], expires_at=expiry))
    assert brief.view["expires_at"] <= expiry.isoformat()
    assert brief.http.get("/session").status_code == 200
