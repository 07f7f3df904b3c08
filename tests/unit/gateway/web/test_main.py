from __future__ import annotations

import os
import socket

import warm


def refusal(**wrong: str) -> str:
    """What it says, in one line, when it will not serve."""
    done = warm.run("gateway.web.__main__", env={**os.environ, **wrong})
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    return line


def test_a_setting_that_cannot_be_served_is_named() -> None:
    assert refusal(GATEWAY_PORT="0.0.0.0").startswith("gateway: GATEWAY_PORT: ")


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert refusal(GATEWAY_PORT=port).startswith(f"gateway: GATEWAY_PORT: 127.0.0.1:{port} cannot be used")
