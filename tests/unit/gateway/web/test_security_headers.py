"""Each answer tells browsers what it is not: a page to be framed, a script to be run, a thing to be kept."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from gateway.application import create_app
from gateway.settings import Settings
from gateway.web.middleware import DATA_POLICY


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    # without its lifespan: no store is asked
    transport = httpx2.ASGITransport(create_app(Settings()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        yield http


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health/live", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/docs", 200),
        ("GET", "/docs/assets/swagger-ui.css", 200),
        ("GET", "/console/sign-in", 200),
        ("POST", "/health/live", 405),
        ("GET", "/docs/assets/nothing", 404),
        # what nobody foresaw, as there is no lifespan
        ("GET", "/jobs", 500),
    ],
)
async def test_it_is_said_with_every_answer(client: httpx2.AsyncClient, method: str, path: str, status: int) -> None:
    answer = await client.request(method, path)
    assert answer.status_code == status
    said = answer.headers
    assert said["x-content-type-options"] == "nosniff"
    assert said["referrer-policy"] == "same-origin"
    assert said["x-frame-options"] == "DENY"
    assert "camera=()" in said["permissions-policy"]
    assert said.get_list("content-security-policy") == [said["content-security-policy"]]
    for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action "):
        assert part in said["content-security-policy"]


async def test_a_refused_stranger_is_told_too(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/health/live", headers={"Host": "evil.example"})
    assert answer.status_code == 403
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_data_is_kept_by_nobody_and_runs_nothing(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/health/live")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-security-policy"] == DATA_POLICY


async def test_the_references_own_files_may_be_kept(client: httpx2.AsyncClient) -> None:
    for name in ("swagger-ui-bundle.js", "redoc.standalone.js"):
        answer = await client.get(f"/docs/assets/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/javascript")
        assert "no-store" not in answer.headers.get("cache-control", "")


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
async def test_no_page_of_ours_lets_a_script_in_that_it_was_not_made_with(
    client: httpx2.AsyncClient, path: str
) -> None:
    policy = (await client.get(path)).headers["content-security-policy"]
    (scripts,) = (part for part in policy.split("; ") if part.startswith("script-src "))
    assert "unsafe" not in scripts
    assert "http" not in scripts
