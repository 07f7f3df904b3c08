"""Receivers verify calls of webhooks with npm's library of the standard; that of PyPI is in `test_signatures.py`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import npm
import pytest
from machine import find_program
from receivers import Call, Receiver, answer
from sites.server import Site
from stack import Stack, wait_until

pytestmark = [pytest.mark.stack]

#: It must fit nothing.
NOBODYS = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

VERIFY = """
import { readFileSync } from 'node:fs';
import { Webhook } from 'standardwebhooks';
const { body, headers, secrets } = JSON.parse(readFileSync(0, 'utf8'));
const verified = secrets.map(secret => {
  try {
    const told = new Webhook(secret).verify(body, headers);
    return told.event ?? told.type;
  } catch (error) { return error.message; }
});
console.log(JSON.stringify(verified));
"""


@pytest.fixture
def verifier(request: pytest.FixtureRequest) -> Path:
    assert request.config.cache is not None
    folder = npm.install("standardwebhooks@1.1.1", request.config.cache.mkdir("npm-standardwebhooks"))
    (folder / "verify.mjs").write_text(VERIFY)
    return folder


def verified(verifier: Path, call: Call, *secrets: str) -> Any:
    """What the library says of the call, with each of the secrets."""
    asked = json.dumps({"body": call.body.decode(), "headers": call.headers, "secrets": secrets}).encode()
    command = [find_program("node"), "verify.mjs"]
    return json.loads(subprocess.run(command, cwd=verifier, input=asked, capture_output=True, check=True).stdout)


def test_npms_library_verifies_a_call_with_both_secrets_while_one_is_exchanged(
    stack: Stack, site: Site, verifier: Path
) -> None:
    def new_secret() -> str:
        answer = stack.http.post(f"{stack.url}/webhooks/secret", params={"user_id": "receiver"})
        return str(answer.raise_for_status().json()["secret"])

    secrets = [new_secret(), new_secret()]
    with Receiver(answer(204)) as receiver:
        job_id = stack.crawl(f"{site.url}/", user_id="receiver", webhook_url=receiver.url())
        wait_until(lambda: receiver.calls, what="the call")
    call = receiver.calls[0]
    assert call.headers["webhook-id"] == f"msg_{job_id}"
    found = verified(verifier, call, *secrets, NOBODYS)
    assert found == ["job.ended", "job.ended", "No matching signature found"]


def test_an_endpoint_is_told_of_a_crawl_from_its_start_to_its_end(stack: Stack, site: Site, verifier: Path) -> None:
    with Receiver(answer(204)) as receiver:
        wanted = {"url": receiver.url(), "user_id": "listener", "filter": {"spiders": ["seo"]}}
        made = stack.http.post(f"{stack.url}/endpoints", json=wanted).raise_for_status().json()
        job_id = stack.crawl(f"{site.url}/tree/2", user_id="listener")
        wait_until(lambda: len(receiver.calls) >= 2, what="two calls")
        bodies = {body["type"]: body["data"] for body in (json.loads(call.body) for call in receiver.calls)}
        assert bodies.keys() == {"job.started", "job.finished"}
        assert (bodies["job.started"]["seq"], bodies["job.finished"]["seq"]) == (1, 2)
        assert {data["job_id"] for data in bodies.values()} == {job_id}
        # the page that it leads to is there
        assert stack.http.get(bodies["job.finished"]["page_url"], follow_redirects=True).is_success
        assert verified(verifier, receiver.calls[0], made["secret"], NOBODYS)[1] == "No matching signature found"
    place = f"{stack.url}/endpoints/{made['endpoint_id']}"

    def delivered() -> list[dict[str, Any]] | None:
        told = stack.http.get(f"{place}/deliveries").json()["deliveries"]
        return told if {one["state"] for one in told} == {"delivered"} else None

    assert len(wait_until(delivered, what="the record of both")) == 2
    assert stack.http.delete(place).status_code == httpx2.codes.NO_CONTENT
