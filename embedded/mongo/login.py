"""The login: the server's half of SCRAM-SHA-256 (RFC 5802 and 7677).

A login is needed because all users of the machine can connect to loopback. The password is random and long, so the
smallest number of rounds that drivers accept is enough.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from embedded.mongo.errors import Code, MongoError
from embedded.mongo.paths import Document

USER = "discoverybot"
MECHANISM = "SCRAM-SHA-256"
_ROUNDS = 4096
#: Commands that need no login: drivers send them before they log in, or to check that the server runs.
_OPEN = frozenset({"hello", "isMaster", "ismaster", "ping", "buildInfo", "buildinfo", "endSessions"})
#: "No channel binding", in the form of the first message, and in the form of the second.
_UNBOUND, _UNBOUND_AGAIN = "n,,", "c=biws"


class Credentials:
    """The keys that a server stores instead of a password."""

    def __init__(self, password: str) -> None:
        self.salt = os.urandom(28)
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), self.salt, _ROUNDS)
        self.stored_key = hashlib.sha256(_mac(salted, "Client Key")).digest()
        self.server_key = _mac(salted, "Server Key")


class _Exchange(NamedTuple):
    """The state after the client's first message and our answer to it."""

    user: str
    nonce: str
    #: Both messages, which the client's proof covers.
    said: str
    #: Whether the client accepts our proof as the last message.
    is_short: bool


class Login:
    """The login of one connection. Without `credentials` every client is logged in."""

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self._exchange: _Exchange | None = None
        self._has_proved = False
        self._is_in = credentials is None

    def answer(self, command: Document) -> Document | None:
        """The reply if the command is part of a login, or is refused without a login; `None` if it may be run."""
        name = next(iter(command), "")
        if name not in COMMANDS and (self._is_in or name in _OPEN):
            return None
        if name not in COMMANDS:
            return MongoError(Code.Unauthorized, f"command {name} requires authentication").as_reply()
        try:
            return {"conversationId": 1, **COMMANDS[name](self, command), "ok": 1.0}
        except (KeyError, ValueError, TypeError):
            self._exchange, self._has_proved = None, False
            return MongoError(Code.AuthenticationFailed, "Authentication failed.").as_reply()

    def _start(self, command: Document) -> Document:
        """Answer `saslStart`. Raises `KeyError`, `ValueError` or `TypeError` if the command is not a valid login."""
        message = _text(command["payload"])
        if self._credentials is None or command["mechanism"] != MECHANISM or not message.startswith(_UNBOUND):
            raise ValueError
        bare = message.removeprefix(_UNBOUND)
        fields = _fields(bare)
        nonce = fields["r"] + b64encode(os.urandom(24)).decode()
        ours = f"r={nonce},s={b64encode(self._credentials.salt).decode()},i={_ROUNDS}"
        is_short = bool((command.get("options") or {}).get("skipEmptyExchange"))
        self._is_in = self._has_proved = False
        self._exchange = _Exchange(fields["n"], nonce, f"{bare},{ours}", is_short)
        return {"done": False, "payload": ours.encode()}

    def _continue(self, command: Document) -> Document:
        """Answer `saslContinue`. Raises the errors of `_start`."""
        exchange, credentials, message = self._exchange, self._credentials, _text(command["payload"])
        if exchange is None or credentials is None:
            raise ValueError
        if self._has_proved and not message:
            self._is_in, self._exchange = True, None
            return {"done": True, "payload": b""}
        unproved, _, proof = message.rpartition(",p=")
        said = f"{exchange.said},{unproved}"
        key = _xor(b64decode(proof, validate=True), _mac(credentials.stored_key, said))
        is_right = hmac.compare_digest(hashlib.sha256(key).digest(), credentials.stored_key)
        if not is_right or exchange.user != USER or unproved != f"{_UNBOUND_AGAIN},r={exchange.nonce}":
            raise ValueError
        self._has_proved, self._is_in = True, exchange.is_short
        signature = b64encode(_mac(credentials.server_key, said)).decode()
        return {"done": exchange.is_short, "payload": f"v={signature}".encode()}


COMMANDS: Mapping[str, Callable[[Login, Document], Document]] = {
    "saslStart": Login._start,  # noqa: SLF001 - its own
    "saslContinue": Login._continue,  # noqa: SLF001 - its own
}


def _text(payload: Any) -> str:
    if not isinstance(payload, bytes):
        raise TypeError
    return payload.decode()


def _fields(message: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in message.split(","))}


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
