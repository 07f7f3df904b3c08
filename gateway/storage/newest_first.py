"""Pages of a list that grows at its front: the cursor names the last one seen, so that none comes twice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from pymongo import DESCENDING

from gateway.domain.errors import InvalidRequestError
from gateway.storage.client import Document
from gateway.storage.documents import Documents

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CURSOR = re.compile(r"(\d{1,14})-([0-9a-f]{32})")

NEWEST_FIRST = [("created_at", DESCENDING), ("_id", DESCENDING)]

Model = TypeVar("Model")


def page(
    documents: Documents[Model],
    conditions: Sequence[Document],
    limit: int,
    after: str | None,
    *,
    field: str = "created_at",
    identity: str = "id",
) -> tuple[list[Model], str | None]:
    """Newest first, by `field`; and the cursor of the page that follows, `None` after the last. `identity` is what
    the models call a document's `_id`.

    Raises `InvalidRequestError` for a cursor that none of our pages gave out.
    """
    wanted = [*conditions, *([older_than(after, field)] if after is not None else [])]
    order = [(field, DESCENDING), ("_id", DESCENDING)]
    found = documents.find({"$and": wanted} if wanted else {}, limit + 1, order)
    if len(found) <= limit:
        return found, None
    last = found[limit - 1]
    return found[:limit], cursor_of(getattr(last, field), getattr(last, identity))


def cursor_of(moment: datetime, identity: str) -> str:
    return f"{(moment - _EPOCH) // timedelta(milliseconds=1)}-{identity}"


def older_than(cursor: str, field: str = "created_at") -> Document:
    """The condition for what follows. Raises `InvalidRequestError` for a cursor that none of our pages gave out."""
    moment, identity = _place(cursor)
    # an index leads there by the first condition alone
    return {field: {"$lte": moment}, "$or": [{field: {"$lt": moment}}, {"_id": {"$lt": identity}}]}


def down_to(cursor: str, field: str = "created_at") -> Document:
    """The condition for what does not follow: the place itself, and all before it."""
    moment, identity = _place(cursor)
    return {field: {"$gte": moment}, "$or": [{field: {"$gt": moment}}, {"_id": {"$gte": identity}}]}


def moment_of(cursor: str) -> datetime:
    return _place(cursor)[0]


def _place(cursor: str) -> tuple[datetime, str]:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidRequestError("after", "is not a cursor; take `next` of the page before")
    return _EPOCH + timedelta(milliseconds=int(match[1])), match[2]
