"""An S3 server as a real process on loopback. It forgets everything when it is stopped, like a lost bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from stores import StoreProcess, free_port, moto_server

BUCKET = "crawls"
KEY, SECRET = "key-of-the-tests", "secret-of-the-tests"
#: The server only reads the region's name in it.
_SIGNED = f"AWS4-HMAC-SHA256 Credential={KEY}/20270601/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


@contextmanager
def s3_server(folder: Path) -> Iterator[StoreProcess]:
    """The server's URL, after the bucket was made."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    with moto_server(url, port, lambda: _make_bucket(url), folder / "s3.log") as server:
        yield server


def _make_bucket(url: str) -> httpx2.Response:
    headers = {"Authorization": _SIGNED, "Content-Length": "0"}
    return httpx2.put(f"{url}/{BUCKET}", headers=headers, trust_env=False, timeout=30)


def s3_settings(url: str) -> dict[str, str]:
    """The settings with which a process stores files there."""
    return {
        "FILES_URL": f"s3://{BUCKET}/files",
        "FILES_ENDPOINT": url,
        "FILES_REGION": "us-east-1",
        "FILES_ACCESS_KEY": KEY,
        "FILES_SECRET_KEY": SECRET,
    }
