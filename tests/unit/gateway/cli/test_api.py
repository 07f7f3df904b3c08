from __future__ import annotations

from threading import Timer
from unittest.mock import patch

import httpcore2
import httpx2
import pytest
from unit.gateway.cli.conftest import Answer, Run, StandIn

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


def test_without_a_key_it_says_how_to_get_one_without_asking_the_gateway(gateway: StandIn, run: Run) -> None:
    refused = {"error": {"code": "key_required", "message": "send a key", "detail": None}}
    gateway.says("GET /jobs", Answer(401, refused))
    done = run("jobs", DISCOVERYBOT_KEY="")
    assert done.returncode == 2
    assert "send a key\nSet DISCOVERYBOT_KEY; if the admin's key is lost, on the server: env -u DISC" in done.stderr
    assert "keys create --scope admin" in done.stderr
    assert "The one in DISCOVERYBOT_KEY is not valid" in run("jobs", DISCOVERYBOT_KEY="db_a_b").stderr
