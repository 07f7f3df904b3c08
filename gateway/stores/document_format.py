"""The number of the documents' format, and the refusal to start on stores in a newer format
(`docs/decisions/0030-the-documents-format.md`).

A new field that older versions may ignore does not make a new format. Every version reads documents of all earlier
versions. None are converted: fields that an earlier version did not store have defaults in the models.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import NamedTuple

from pymongo.database import Database
from pymongo.errors import PyMongoError

from gateway.crash_points import state_change
from gateway.errors import NewerStoresError
from gateway.process import NEWER_STORES
from gateway.stores.mongo import Document, connect


class Format(NamedTuple):
    """The formats of a version."""

    #: The highest format that this version understands. A release already understands the format that the next
    #: release writes, so that both can run side by side, and an upgrade can be undone.
    understood: int
    #: The format that this version writes.
    written: int


OURS = Format(understood=1, written=1)
#: The format of stores without a format number.
_FIRST = 1
#: The id of the document with the number, in the collection `counters`.
_ID = "document_format"
#: Seconds that the start of a process may wait for MongoDB.
_PATIENCE = 2.0


def stored_format(database: Database[Document]) -> int:
    """The highest format that any version has written. Raises PyMongo's errors."""
    found = database["counters"].find_one({"_id": _ID})
    return _FIRST if found is None else int(found["value"])


def enter(database: Database[Document], ours: Format = OURS) -> None:
    """Store the number of the format that this version writes, before it writes any document.

    Raises `NewerStoresError` if this version does not understand the stored format, and PyMongo's errors.
    """
    stored = stored_format(database)
    if stored > ours.understood:
        raise NewerStoresError(_where(database), stored, ours.understood, version("discoverybot"))
    if stored < ours.written:
        _raise_to(database, ours.written)


@state_change("document_format.raise")
def _raise_to(database: Database[Document], number: int) -> None:
    # never lower it, because another process may have raised it further since it was read
    database["counters"].update_one({"_id": _ID}, {"$max": {"value": number}}, upsert=True)


def _where(database: Database[Document]) -> str:
    """The database's name and servers. The URI is not shown, because it may contain a password."""
    return f"{database.name} at " + ", ".join(f"{host}:{port}" for host, port in sorted(database.client.nodes))


def refuse_newer_stores(uri: str, process: str) -> None:
    """End this process, with one line on stderr, if it does not understand the stored format. If MongoDB does not
    answer now, the start continues, and the process calls `enter` when it connects.

    Raises `SystemExit`.
    """
    try:
        database = connect(uri, timeout=_PATIENCE)
        try:
            enter(database)
        finally:
            database.client.close()
    except NewerStoresError as error:
        sys.stderr.write(f"{process}: {error.message}\n")
        raise SystemExit(NEWER_STORES) from None
    except PyMongoError:
        return
