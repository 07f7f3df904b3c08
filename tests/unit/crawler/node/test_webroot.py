from __future__ import annotations

import os
from pathlib import Path

import pytest
from twisted.web.test.requesthelper import DummyChannel

from crawler.node.webroot import NodeRequest, origin_guard

LOOPBACK = origin_guard("127.0.0.1", "http://127.0.0.1:6800")
PUBLISHED = origin_guard("0.0.0.0", "https://Node-1.example:8443")


@pytest.mark.parametrize("host", ["127.0.0.1:6800", "localhost", "LOCALHOST:1", "127.1.2.3", "[::1]:6800"])
def test_loopback_is_always_the_node_itself(host: str) -> None:
    assert LOOPBACK.refusal(host, None) is None
    assert PUBLISHED.refusal(host, None) is None


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "localhost.evil.example", "0.0.0.0", "[::1", "a:b", "127.0.0.1@evil.example:80x"],
)
def test_any_other_name_is_refused(host: str | None) -> None:
    assert LOOPBACK.refusal(host, None)
    assert PUBLISHED.refusal(host, None)


def test_the_name_in_node_url_and_the_bind_address_are_the_nodes() -> None:
    assert PUBLISHED.refusal("node-1.example:8443", None) is None
    assert origin_guard("10.0.0.7", "http://127.0.0.1:1").refusal("10.0.0.7:1", None) is None
    assert origin_guard("::", "http://127.0.0.1:1").refusal("[::]:1", None)


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("localhost:6800", "http://localhost:6800", True),
        ("localhost", "http://localhost:80", True),
        ("localhost", "https://localhost:443", True),
        ("localhost:6800", "http://localhost:3000", False),
        ("localhost:6800", "http://127.0.0.1:6800", False),
        ("localhost:6800", "null", False),
        ("localhost:6800", "", False),
        ("localhost:6800", "http://[", False),
        ("localhost:6800", "chrome-extension://localhost:6800", False),
        ("localhost:6800", "https://node-1.example:8443", True),
        ("localhost:6800", "https://node-1.example", False),
    ],
)
def test_only_the_nodes_own_pages_may_ask(host: str, origin: str, allowed: bool) -> None:  # noqa: FBT001 - a table
    assert (PUBLISHED.refusal(host, origin) is None) is allowed


@pytest.mark.parametrize("length", [100_000, 1 << 30, None])
def test_a_large_body_is_kept_in_the_nodes_folder_and_not_where_spiders_write(
    length: int | None, tmp_path: Path
) -> None:
    request = NodeRequest(DummyChannel(), folder=tmp_path)
    request.gotLength(length)
    request.handleContentChunk(b"x" * 1000)
    assert os.fstat(request.content.fileno()).st_nlink == 0
    assert Path(f"/proc/self/fd/{request.content.fileno()}").readlink().is_relative_to(tmp_path)
    request.content.close()


def test_a_small_body_is_no_file(tmp_path: Path) -> None:
    request = NodeRequest(DummyChannel(), folder=tmp_path)
    request.gotLength(99_999)
    request.handleContentChunk(b"x")
    assert request.content.read(1) == b""
    assert request.content.getvalue() == b"x"
