"""The identity of our crawls towards sites, by Web Bot Auth: requests have a signature (RFC 9421), and sites find the
public key for it in a directory.

https://www.ietf.org/archive/id/draft-ietf-webbotauth-httpsig-protocol-00.html has the signature, and
https://www.ietf.org/archive/id/draft-meunier-webbotauth-httpsig-directory-00.html the directory.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

if TYPE_CHECKING:
    from http_message_signatures import HTTPMessageSigner

#: The path of the directory, and its media type.
DIRECTORY_PATH = "/.well-known/http-message-signatures-directory"
DIRECTORY_TYPE = "application/http-message-signatures-directory+json"
#: How long a signature of a request is valid, and one of the directory.
REQUEST_VALID, DIRECTORY_VALID = timedelta(minutes=5), timedelta(days=1)
_LABEL = "sig1"
_NONCE_BYTES = 64


class KeyUnreadableError(ValueError):
    """The text is not a private key of Ed25519."""


@dataclass(frozen=True)
class BotIdentity:
    #: Origin (`https://bots.example`) at which sites find the directory.
    url: str
    #: The private key: PEM, or DER in base64.
    private: str = field(repr=False)

    @cached_property
    def key(self) -> Ed25519PrivateKey:
        """The private key. Raises `KeyUnreadableError`, which does not quote the key."""
        text = self.private.strip().encode()
        try:
            is_pem = text.startswith(b"-----")
            key: object = (
                serialization.load_pem_private_key(text, password=None)
                if is_pem
                else serialization.load_der_private_key(base64.b64decode(text, validate=True), password=None)
            )
        except (ValueError, TypeError):
            raise KeyUnreadableError(
                "is neither a PEM nor DER in base64 of a private key without a password"
            ) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise KeyUnreadableError("is no key of Ed25519: openssl genpkey -algorithm ed25519")
        return key

    @cached_property
    def jwk(self) -> dict[str, str]:
        """The public key (RFC 8037)."""
        public = self.key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        return {"crv": "Ed25519", "kty": "OKP", "x": _base64url(public)}

    @cached_property
    def key_id(self) -> str:
        """The key's thumbprint (RFC 7638)."""
        canonical = json.dumps(self.jwk, sort_keys=True, separators=(",", ":"))
        return _base64url(sha256(canonical.encode()).digest())

    def headers_for(self, url: str, now: datetime | None = None) -> dict[str, str]:
        """The headers that sign a request to this URL. They are valid only for its host."""
        message = SimpleNamespace(method="GET", url=url, headers={"Signature-Agent": f'{_LABEL}="{self.url}"'})
        nonce = base64.b64encode(os.urandom(_NONCE_BYTES)).decode()
        covered = ('"@authority"', f'"signature-agent";key="{_LABEL}"')
        self._sign(message, covered, REQUEST_VALID, now, tag="web-bot-auth", nonce=nonce)
        return dict(message.headers)

    def directory(self, now: datetime | None = None) -> tuple[bytes, dict[str, str]]:
        """The directory with the public key, and the headers with a signature by the private key. So nobody else can
        serve a copy of the directory as their own.
        """
        request = SimpleNamespace(method="GET", url=self.url + DIRECTORY_PATH, headers={})
        message = SimpleNamespace(status_code=200, request=request, headers={})
        self._sign(message, ('"@authority";req',), DIRECTORY_VALID, now, tag="http-message-signatures-directory")
        return json.dumps({"keys": [self.jwk | {"kid": self.key_id, "use": "sig"}]}).encode(), message.headers

    @cached_property
    def _signer(self) -> HTTPMessageSigner:
        # imported here, because few processes sign anything
        from http_message_signatures import HTTPMessageSigner  # noqa: PLC0415 - as above
        from http_message_signatures.algorithms import ED25519  # noqa: PLC0415 - as above

        keys: Any = SimpleNamespace(resolve_private_key=lambda _: self.key)
        return HTTPMessageSigner(signature_algorithm=ED25519, key_resolver=keys)

    def _sign(
        self, message: Any, covered: tuple[str, ...], valid: timedelta, now: datetime | None, **more: Any
    ) -> None:
        now = now or datetime.now(UTC)
        self._signer.sign(
            message, key_id=self.key_id, created=now, expires=now + valid, label=_LABEL,
            covered_component_ids=covered, **more,
        )  # fmt: skip


def _base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
