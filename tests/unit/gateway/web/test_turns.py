"""How the loop is shared by users who ask for much at once."""

from __future__ import annotations

import asyncio
from collections import Counter

from gateway.web.guard import Turns

CROWD = 1000
#: Rounds of the loop that a request of another user takes.
ROUNDS = 10


async def test_what_other_users_have_ready_comes_between_a_users_requests() -> None:
    turns, begun = Turns(), Counter[str]()

    async def ask(user: str) -> None:
        await turns.next(user)
        begun[user] += 1

    async def ask_and_be_answered(user: str) -> int:
        await ask(user)
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        return begun["anne"]

    crowd = [asyncio.create_task(ask("anne")) for _ in range(CROWD)]
    before = await ask_and_be_answered("bert")
    assert 0 < before <= 2 * ROUNDS
    await asyncio.gather(*crowd)
    assert begun == {"anne": CROWD, "bert": 1}


async def test_a_request_that_is_given_up_holds_up_no_other() -> None:
    turns = Turns()
    crowd = [asyncio.create_task(turns.next("anne")) for _ in range(10)]
    await asyncio.sleep(0)
    for given_up in crowd[:9]:
        given_up.cancel()
    async with asyncio.timeout(60):
        await crowd[9]
