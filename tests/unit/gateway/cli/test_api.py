from __future__ import annotations

from threading import Timer
from unittest.mock import patch

import httpcore2
import httpx2
import pytest
from unit.gateway.cli.conftest import Answer, StandIn

from gateway.cli.api import Api, ApiError


@pytest.mark.parametrize(("url", "loads"), [("http://127.0.0.1:8001", 0), ("https://crawl.example.com", 1)])
def test_authorities_are_loaded_for_tls_alone(url: str, loads: int) -> None:
    with patch.object(httpcore2, "default_ssl_context", wraps=httpcore2.default_ssl_context) as loaded:
        Api(url).client.close()
    assert loaded.call_count == loads


@pytest.mark.parametrize(("form", "is_awaited"), [("xlsx", True), ("parquet", True), ("csv", False)])
def test_a_file_that_is_made_before_its_first_byte_is_waited_for(
    gateway: StandIn, form: str, *, is_awaited: bool
) -> None:
    gateway.says("GET /jobs/1/items", Answer(200, b"all", after="/now"))
    gateway.says("GET /now", Answer(200, {}))
    later = Timer(0.6, httpx2.get, (f"{gateway.url}/now",))
    later.start()
    try:
        found = b"".join(Api(gateway.url, timeout=0.2).download("/jobs/1/items", format=form))
        assert (is_awaited, found) == (True, b"all")
    except ApiError:
        assert not is_awaited
    finally:
        later.join()
