"""The base classes of records with methods, and of collections of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from discoverybot_client.records import Record
from discoverybot_client.rules import lacking

from .transport import Transport


class Bound(Record):
    """A record, as it was known last, and where to ask about it. Each method that asks for it anew, or changes it,
    renews the object itself and returns it.
    """

    def __init__(self, data: Mapping[str, Any], transport: Transport) -> None:
        self._transport = transport
        self._learn(data)

    async def _renew(self, method: str, path: str, **options: Any) -> Self:
        self._learn(await self._transport.call(method, path, **options))
        return self

    def _learn(self, data: Mapping[str, Any]) -> None:
        """Replace what is known. Raises `NoGatewayError` if the answer does not say which object it is."""
        for name in self._names:
            if name not in data:
                raise lacking(self._transport.url, name)
        self._data = dict(data)


class Resource:
    """The collection of all objects of one kind."""

    def __init__(self, transport: Transport, user_id: str | None) -> None:
        self._transport = transport
        #: The user, if the gateway has no keys.
        self._user_id = user_id
