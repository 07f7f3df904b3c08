"""What a gateway does before its first request, so that this one does not wait for it."""

from __future__ import annotations

from unittest.mock import patch

import httpx2
import pytest
from fastapi import routing

from gateway.application import create_app
from gateway.settings import Settings


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/health/live", 200), ("POST", "/health/live", 405)])
async def test_no_request_waits_for_the_routes_to_be_made_or_described(method: str, path: str, status: int) -> None:
    app = create_app(Settings())
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as http:
        with patch.object(routing, "_populate_api_route_state", side_effect=AssertionError("a route was made")):
            answer = await http.request(method, path)
    assert answer.status_code == status
    assert app.openapi_schema is None
