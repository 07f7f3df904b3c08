"""The base classes of records with methods, and of collections of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from discoverybot_client.records import Record

from .transport import Transport


class Bound(Record):
    """A record, as it was known last, and where to ask about it. Each method that asks for it anew, or changes it,
    renews the object itself and returns it.
    """

    def __init__(self, data: Mapping[str, Any], transport: Transport) -> None:
        super().__init__(data)
        self._transport = transport

    async def _renew(self, method: str, path: str, **options: Any) -> Self:
        self._data = await self._transport.call(method, path, **options)
        return self


class Resource:
    """The collection of all objects of one kind."""

    def __init__(self, transport: Transport, user_id: str | None) -> None:
        self._transport = transport
        #: The user, if the gateway has no keys.
        self._user_id = user_id
