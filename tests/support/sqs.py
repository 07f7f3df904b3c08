"""An SQS server as a real process on loopback. It forgets queues and messages when it is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import httpx2
from stores import StoreProcess, free_port, moto_server

KEY, SECRET = "key-of-the-tests", "secret-of-the-tests"


@contextmanager
def sqs_server(folder: Path) -> Iterator[StoreProcess]:
    """The server's URL in the form of `BROKER_URL`."""
    address = f"127.0.0.1:{(port := free_port())}"
    url = f"sqs://{KEY}:{SECRET}@{address}"
    with moto_server(url, port, lambda: _ask(address), folder / "sqs.log") as server:
        yield server


def _ask(address: str) -> httpx2.Response:
    return httpx2.get(f"http://{address}/moto-api/", trust_env=False, timeout=30)


def client(url: str) -> Any:
    """Amazon's own client."""
    keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
    return boto3.client("sqs", endpoint_url=f"http://{url.rpartition('@')[2]}", **keys)
