"""The commands by which a driver finds out whom it is talking to."""

from __future__ import annotations

from datetime import UTC, datetime

from embedded.mongo.arguments import Arguments
from embedded.mongo.collection import MAX_DOCUMENT_BYTES
from embedded.mongo.login import MECHANISM
from embedded.mongo.paths import Document
from embedded.mongo.wire import MAX_MESSAGE_BYTES
from embedded.mongo.writes import MAX_STATEMENTS

#: The protocol version of MongoDB 7.0, whose behaviour the supported subset has.
_WIRE_VERSION = 21
_VERSION = [7, 0, 0, 0]


def hello(command: Arguments) -> Document:
    """A standalone without sessions: no `setName`, no `logicalSessionTimeoutMinutes`, so no retryable writes."""
    mechanisms = {"saslSupportedMechs": [MECHANISM]} if command.any("saslSupportedMechs") else {}
    return {
        "helloOk": True,
        "isWritablePrimary": True,
        "ismaster": True,
        "maxBsonObjectSize": MAX_DOCUMENT_BYTES,
        "maxMessageSizeBytes": MAX_MESSAGE_BYTES,
        "maxWriteBatchSize": MAX_STATEMENTS,
        "localTime": datetime.now(UTC),
        "minWireVersion": 0,
        "maxWireVersion": _WIRE_VERSION,
        "readOnly": False,
        **mechanisms,
    }


def ping(_: Arguments) -> Document:
    return {}


def build_info(_: Arguments) -> Document:
    return {
        "version": "7.0.0",
        "versionArray": _VERSION,
        "gitVersion": "discoverybot-embedded",
        "modules": [],
        "bits": 64,
        "maxBsonObjectSize": MAX_DOCUMENT_BYTES,
    }


def connection_status(_: Arguments) -> Document:
    return {"authInfo": {"authenticatedUsers": [], "authenticatedUserRoles": []}}
