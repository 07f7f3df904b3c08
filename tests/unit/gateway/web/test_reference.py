"""The API reference is there for a browser that reaches nothing but the gateway."""

from __future__ import annotations

import re

import httpx2
import pytest

from gateway.application import create_app
from gateway.settings import Settings


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
async def test_the_reference_refers_to_no_other_host(path: str) -> None:
    # without its lifespan: no store is asked
    transport = httpx2.ASGITransport(create_app(Settings()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        page = await client.get(path)
        assert page.status_code == 200
        assert not re.search("https?://", page.text)
        links = re.findall(r'(?:src|href|spec-url)="([^"]+)"', page.text)
        assert any(link.endswith(".js") for link in links)
        for link in links:
            assert re.match("/[^/]", link)
            assert (await client.get(link)).status_code == 200
