"""Addresses that lead into inner networks by a trick: the gateway refuses all of them."""

from __future__ import annotations

from typing import Any

import httpx2
from egress_tricks import TRICKS
from pymongo.database import Database


def test_no_trick_becomes_a_job(
    gateway: httpx2.Client, database: Database[dict[str, Any]], crawl: dict[str, Any]
) -> None:
    for trick in TRICKS:
        url = trick.replace("PORT", "8080")
        for change in ({"start_urls": ["https://example.com/", url]}, {"webhook_url": url}):
            response = gateway.post("/crawl", json={**crawl, **change})
            assert response.status_code in {403, 422}, (change, response.text)
            assert response.json()["error"]["detail"]["field"] in {"start_urls.1", "webhook_url"}
    assert database["jobs"].find_one({"user_id": crawl["user_id"]}) is None
