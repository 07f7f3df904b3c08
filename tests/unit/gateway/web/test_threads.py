from __future__ import annotations

import asyncio
import threading

import pytest

from gateway.web.threads import ThreadPool


class Gone(Exception):  # noqa: N818 - it is what is said, not a fault
    pass


class Store:
    is_away = False

    def check(self) -> None:
        if self.is_away:
            raise Gone


async def test_what_is_queued_when_the_store_goes_away_is_refused_and_so_is_what_comes_later() -> None:
    store, release, calls = Store(), threading.Event(), []
    pool = ThreadPool(1, "test", store.check)
    held = asyncio.create_task(pool.run(release.wait, 60))
    queued = asyncio.create_task(pool.run(calls.append, "queued"))
    await asyncio.sleep(0)
    store.is_away = True
    with pytest.raises(Gone):
        await pool.run(calls.append, "later")
    release.set()
    assert await held
    with pytest.raises(Gone):
        await queued
    store.is_away = False
    await pool.run(calls.append, "back")
    assert calls == ["back"]
    pool.close()
