"""Signatures by Web Bot Auth, against the published example of RFC 9421's key and as a site verifies them."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from http_message_signatures import HTTPMessageVerifier, InvalidSignature
from http_message_signatures.algorithms import ED25519

from gateway.contract.bot_identity import BotIdentity, KeyUnreadableError
from gateway.errors import SettingsError
from gateway.settings import ScrapydSettings

URL = "https://bots.example"
#: RFC 9421, B.1.4, and its thumbprint as https://github.com/cloudflare/web-bot-auth has it.
PEM = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF
-----END PRIVATE KEY-----
"""
KEY_ID = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"
NOW = datetime.now(UTC)


def verified(identity: BotIdentity, headers: dict[str, str], url: str, **more: object) -> dict[str, object]:
    """What a site that knows the directory finds in the signature. Raises `InvalidSignature`."""
    (jwk,) = json.loads(identity.directory()[0])["keys"]
    key = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(jwk["x"] + "="))
    keys = SimpleNamespace(resolve_public_key=lambda key_id: {jwk["kid"]: key}[key_id])
    message = SimpleNamespace(method="GET", url=url, headers=headers, **more)
    (found,) = HTTPMessageVerifier(signature_algorithm=ED25519, key_resolver=keys).verify(message)  # type: ignore[arg-type]
    return dict(found.parameters)


def test_the_key_is_in_no_text_about_it() -> None:
    assert "MC4C" not in repr(BotIdentity(URL, PEM))


def test_a_request_is_verified_by_the_key_of_the_directory_for_its_host_alone() -> None:
    identity = BotIdentity(URL, PEM)
    headers = identity.headers_for("https://shop.example:8443/a?b=c")
    found = verified(identity, headers, "https://shop.example:8443/other")
    assert (found["keyid"], found["tag"], found["alg"]) == (KEY_ID, "web-bot-auth", "ed25519")
    assert headers["Signature-Agent"] == f'sig1="{URL}"'
    again = identity.headers_for("https://shop.example:8443/a?b=c")
    assert again["Signature"] != headers["Signature"], "a nonce of its own"
    with pytest.raises(InvalidSignature):
        verified(identity, headers, "https://evil.example/")
    with pytest.raises(InvalidSignature):
        verified(
            identity, {**headers, "Signature-Agent": 'sig1="https://evil.example"'}, "https://shop.example:8443/"
        )


def test_a_signature_is_over_after_five_minutes() -> None:
    identity = BotIdentity(URL, PEM)
    old = identity.headers_for("https://shop.example/", NOW - timedelta(minutes=6))
    with pytest.raises(InvalidSignature):
        verified(identity, old, "https://shop.example/")


def test_the_directory_is_signed_for_the_origin_that_it_is_kept_at() -> None:
    identity = BotIdentity(URL, PEM)
    content, headers = identity.directory()
    (jwk,) = json.loads(content)["keys"]
    assert (jwk["kid"], jwk["kty"], jwk["crv"], "d" in jwk) == (KEY_ID, "OKP", "Ed25519", False)
    assert 'tag="http-message-signatures-directory"' in headers["Signature-Input"]
    assert '("@authority";req)' in headers["Signature-Input"]


def test_the_key_is_a_pem_or_der_in_base64() -> None:
    der = "".join(PEM.splitlines()[1:-1])
    assert BotIdentity(URL, f" {der}\n").key_id == BotIdentity(URL, PEM).key_id == KEY_ID


RSA = generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    "text", ["", "s3cret", PEM[:60], "-----BEGIN PRIVATE KEY-----", RSA], ids=["none", "text", "cut", "begun", "RSA"]
)
def test_what_is_no_such_key_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(KeyUnreadableError) as refused:
        _ = BotIdentity(URL, text).key
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"WEB_BOT_AUTH_KEY": PEM}, "WEB_BOT_AUTH_URL"),
        ({"WEB_BOT_AUTH_URL": URL}, "WEB_BOT_AUTH_KEY"),
        ({"WEB_BOT_AUTH_KEY": PEM, "WEB_BOT_AUTH_URL": "http://bots.example"}, "WEB_BOT_AUTH_URL"),
        ({"WEB_BOT_AUTH_KEY": PEM, "WEB_BOT_AUTH_URL": "https://bots.example/here"}, "WEB_BOT_AUTH_URL"),
        ({"WEB_BOT_AUTH_KEY": "s3cret", "WEB_BOT_AUTH_URL": URL}, "WEB_BOT_AUTH_KEY"),
    ],
)
def test_settings_that_do_not_fit_together_end_the_start(
    given: dict[str, str], names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=names) as refused:
        ScrapydSettings.load()
    assert "s3cret" not in str(refused.value)
