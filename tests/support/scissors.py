"""A relay whose connections are cut again and again."""

from __future__ import annotations

import asyncio

from relay import Connection, Relay


class Scissors(Relay):
    """Cuts each connection after a number of bytes from the server. Once all numbers are used, it cuts none."""

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
