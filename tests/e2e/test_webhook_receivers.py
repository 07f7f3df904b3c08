"""Receivers verify calls of webhooks with npm's library of the standard; that of PyPI is in `test_signatures.py`."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import npm
import pytest
from machine import find_program
from sites.server import Site
from stack import Stack, wait_until

pytestmark = [pytest.mark.stack]

VERIFY = """
import { readFileSync } from 'node:fs';
import { Webhook } from 'standardwebhooks';
const { body, headers, secrets } = JSON.parse(readFileSync(0, 'utf8'));
const verified = secrets.map(secret => {
  try { return new Webhook(secret).verify(body, headers).event; } catch (error) { return error.message; }
});
console.log(JSON.stringify(verified));
"""


class Inbox:
    """What a receiver got: bodies with their headers, in small letters."""

    def __init__(self) -> None:
        self.url = ""
        self.calls: list[dict[str, Any]] = []


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    inbox = Inbox()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            inbox.calls.append({"body": body, "headers": {k.lower(): v for k, v in self.headers.items()}})
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """The calls are kept, not printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        inbox.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield inbox
        server.shutdown()
        thread.join()


@pytest.fixture
def verifier(request: pytest.FixtureRequest) -> Path:
    assert request.config.cache is not None
    folder = npm.install("standardwebhooks@1.1.1", request.config.cache.mkdir("npm-standardwebhooks"))
    (folder / "verify.mjs").write_text(VERIFY)
    return folder


def test_npms_library_verifies_a_call_with_both_secrets_while_one_is_exchanged(
    stack: Stack, site: Site, inbox: Inbox, verifier: Path
) -> None:
    def new_secret() -> str:
        answer = stack.http.post(f"{stack.url}/webhooks/secret", params={"user_id": "receiver"})
        return str(answer.raise_for_status().json()["secret"])

    secrets = [new_secret(), new_secret()]
    # nobody's: it must fit nothing
    secrets.append("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    job_id = stack.crawl(f"{site.url}/", user_id="receiver", webhook_url=inbox.url)
    wait_until(lambda: inbox.calls, what="the call")
    call = inbox.calls[0]
    assert call["headers"]["webhook-id"] == f"msg_{job_id}"
    asked = json.dumps({**call, "secrets": secrets}).encode()
    command = [find_program("node"), "verify.mjs"]
    output = subprocess.run(command, cwd=verifier, input=asked, capture_output=True, check=True, timeout=120).stdout
    assert json.loads(output) == ["job.ended", "job.ended", "No matching signature found"]
