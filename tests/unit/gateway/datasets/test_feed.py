"""Waiting for a dataset's next changes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from gateway.clock import utc_now
from gateway.datasets.dataset import Dataset
from gateway.datasets.feed import FeedWatch
from gateway.datasets.store import DatasetStore


class _Heads:
    """The one question that is asked of the store."""

    def heads(self, dataset_ids: list[str]) -> dict[str, int]:
        return dict.fromkeys(dataset_ids, 10)


async def _ask(function: Any, *args: Any) -> Any:
    return function(*args)


def known(head: int) -> Dataset:
    now = utc_now()
    return Dataset(id="d1", user_id="u1", name="prices", head_seq=head, created_at=now, updated_at=now)


async def test_who_knows_less_than_others_that_wait_is_woken_at_once() -> None:
    watch = FeedWatch(cast("DatasetStore", _Heads()), _ask)
    up_to_date = asyncio.create_task(watch.changed(known(10), 60))
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await watch.changed(known(5), 60)
    assert not up_to_date.done()
    up_to_date.cancel()
