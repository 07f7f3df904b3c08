from __future__ import annotations

import asyncio
import threading

from gateway.status.health import Report, SharedHealth


async def test_a_crowd_that_asks_at_once_costs_one_look() -> None:
    looks, may_end = [], threading.Event()

    def look() -> Report:
        looks.append(Report({}))
        may_end.wait(90)
        return looks[-1]

    health = SharedHealth(look)
    crowd = [asyncio.create_task(health.report()) for _ in range(50)]
    await asyncio.sleep(0)
    crowd[0].cancel()
    may_end.set()
    told = await asyncio.gather(*crowd[1:])
    assert all(report is looks[0] for report in told)
    assert await health.report() is looks[1]
