"""A way to a server that is cut again and again."""

from __future__ import annotations

import asyncio

from relay import Connection, Relay


class Scissors(Relay):
    """Cuts each connection after so many bytes of its server; once there is no number left, none."""

    budgets: list[int]

    async def _answer(self, reader: asyncio.StreamReader, connection: Connection) -> None:
        if not self.budgets:
            await super()._answer(reader, connection)
            return
        left = self.budgets.pop()
        while left and (data := await reader.read(left)):
            left -= len(data)
            connection.client.write(data)
            await connection.client.drain()
        for end in (connection.client, connection.server):
            end.close()
