"""An S3 server as a real process on loopback. It forgets all when it is stopped, as a bucket that was lost does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from stores import StoreProcess, free_port

BUCKET = "crawls"
KEY, SECRET = "key-of-the-tests", "secret-of-the-tests"
#: The server looks into the name of the region only.
_SIGNED = f"AWS4-HMAC-SHA256 Credential={KEY}/20270601/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


@contextmanager
def s3_server(folder: Path) -> Iterator[StoreProcess]:
    """Its URL. The bucket is there once it is."""
    folder.mkdir(exist_ok=True)
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    store = StoreProcess.at(url, command, lambda: make_bucket(url), folder / "s3.log")
    store.start()
    try:
        yield store
    finally:
        store.stop()


def make_bucket(url: str) -> None:
    """Raises `ConnectionError` while the server is not there."""
    headers = {"Authorization": _SIGNED, "Content-Length": "0"}
    try:
        httpx.put(f"{url}/{BUCKET}", headers=headers, trust_env=False, timeout=30).raise_for_status()
    except httpx.HTTPError as error:
        raise ConnectionError(str(error)) from error


def s3_settings(url: str) -> dict[str, str]:
    """What a process needs to store files there."""
    return {
        "FILES_URL": f"s3://{BUCKET}/files",
        "FILES_ENDPOINT": url,
        "FILES_REGION": "us-east-1",
        "FILES_ACCESS_KEY": KEY,
        "FILES_SECRET_KEY": SECRET,
    }
