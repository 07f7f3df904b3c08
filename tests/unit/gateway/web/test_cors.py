"""Pages of other origins: none may call the gateway but those that the operator lists."""

from __future__ import annotations

import httpx2
import pytest

from gateway.application import create_app
from gateway.settings import Settings

APP = "https://app.example"


async def ask(method: str, origin: str, listed: str = APP, **headers: str) -> httpx2.Response:
    app = create_app(Settings.model_validate({"gateway_cors_origins": listed}))
    # without its lifespan: no store is asked
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await client.request(method, "/health/live", headers={"Origin": origin, **sent})


async def preflight(
    origin: str, method: str = "PATCH", headers: str = "authorization", **more: str
) -> httpx2.Response:
    asked = {"Access_Control_Request_Method": method, "Access_Control_Request_Headers": headers}
    return await ask("OPTIONS", origin, **asked, **more)


async def test_a_listed_origin_may_ask_before_it_has_a_key() -> None:
    for name in ("authorization", "content-type", "last-event-id", "idempotency-key", "x-request-id"):
        answer = await preflight(APP, headers=name)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == APP
        assert name in answer.headers["access-control-allow-headers"].lower()
    for method in ("GET", "POST", "PATCH", "DELETE"):
        assert (await preflight(APP, method)).status_code == 200


async def test_a_listed_origin_reads_the_answer_and_what_it_says_about_itself() -> None:
    answer = await ask("GET", APP)
    assert answer.headers["access-control-allow-origin"] == APP
    assert answer.headers["vary"] == "Origin"
    told = answer.headers["access-control-expose-headers"]
    assert all(name in told for name in ("Retry-After", "X-Request-ID", "RateLimit", "WWW-Authenticate"))
    # the console's cookie is for the gateway's own pages
    assert "access-control-allow-credentials" not in answer.headers


async def test_a_listed_origin_may_change_things_and_reads_refusals_as_well() -> None:
    answer = await ask("POST", APP)
    assert answer.status_code == 405
    assert answer.headers["access-control-allow-origin"] == APP


@pytest.mark.parametrize("origin", ["https://evil.example", "http://app.example", "https://app.example:8443", "null"])
async def test_any_other_origin_is_let_nowhere(origin: str) -> None:
    assert (await preflight(origin)).status_code == 400
    assert "access-control-allow-origin" not in (await ask("GET", origin)).headers
    assert (await ask("POST", origin)).status_code == 403


async def test_without_a_list_nobody_is_allowed_anything() -> None:
    for answer in (await preflight(APP, listed=""), await ask("GET", APP, listed="")):
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert (await ask("POST", APP, listed="")).status_code == 403
