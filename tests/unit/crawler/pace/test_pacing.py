from __future__ import annotations

import asyncio
from itertools import pairwise
from time import monotonic

import pytest

from crawler.pace.pacing import AHEAD_SECONDS, Gate, OwnRate


async def test_slots_of_ones_own_lie_an_interval_apart() -> None:
    rate = OwnRate(0.5)
    assert [await rate.reserve() for _ in range(4)] == pytest.approx([0, 2, 4, 6], abs=0.1)


async def test_slots_of_ones_own_go_on_after_those_that_came_from_elsewhere() -> None:
    rate = OwnRate(0.5)
    rate.follow(7)
    assert await rate.reserve() == pytest.approx(9, abs=0.1)
    await rate.withdraw()
    assert await rate.reserve() == pytest.approx(9, abs=0.1)


async def test_a_gate_lets_through_one_after_the_other_at_its_slot_in_the_order_of_coming() -> None:
    gate, passed = Gate(OwnRate(50)), list[tuple[int, float]]()

    async def pass_through(number: int) -> None:
        await gate.wait(asyncio.sleep)
        passed.append((number, monotonic()))

    began = monotonic()
    await asyncio.gather(*(pass_through(number) for number in range(11)))
    assert [number for number, _ in passed] == list(range(11))
    for number, at in passed:
        assert at >= began + number / 50 - 0.01
    assert all(later >= earlier for (_, earlier), (_, later) in pairwise(passed))


async def test_who_gives_up_waiting_gives_back_the_slot() -> None:
    gate = Gate(OwnRate(1 / 60))
    await gate.wait(asyncio.sleep)

    async def give_up(seconds: float) -> None:
        assert 59 < seconds < 60 - AHEAD_SECONDS + 0.01
        raise InterruptedError

    for _ in range(3):
        with pytest.raises(InterruptedError):
            await gate.wait(give_up)
