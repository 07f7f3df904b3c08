from __future__ import annotations

import ssl
from unittest.mock import patch

import pytest

from gateway.cli.api import Api


@pytest.mark.parametrize(("url", "loads"), [("http://127.0.0.1:8001", 0), ("https://crawl.example.com", 1)])
def test_authorities_are_loaded_for_tls_alone(url: str, loads: int) -> None:
    with patch.object(ssl, "create_default_context", wraps=ssl.create_default_context) as loaded:
        Api(url).client.close()
    assert loaded.call_count == loads
