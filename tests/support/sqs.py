"""An SQS server as a real process on loopback. It forgets queues and messages when it is stopped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import httpx
from stores import StoreProcess, free_port

KEY, SECRET = "key-of-the-tests", "secret-of-the-tests"


@contextmanager
def sqs_server(folder: Path) -> Iterator[StoreProcess]:
    """Its URL, as `BROKER_URL` has it."""
    folder.mkdir(exist_ok=True)
    address = f"127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    store = StoreProcess.at(f"sqs://{KEY}:{SECRET}@{address}", command, lambda: _ask(address), folder / "sqs.log")
    store.start()
    try:
        yield store
    finally:
        store.stop()


def _ask(address: str) -> None:
    """Raises `ConnectionError` while the server is not there."""
    try:
        httpx.get(f"http://{address}/moto-api/", trust_env=False, timeout=30).raise_for_status()
    except httpx.HTTPError as error:
        raise ConnectionError(str(error)) from error


def client(url: str) -> Any:
    """Amazon's own."""
    keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
    return boto3.client("sqs", endpoint_url=f"http://{url.rpartition('@')[2]}", **keys)
