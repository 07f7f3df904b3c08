"""A wait for a job's end ends when it is told to."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.web.event_stream.hub import wait_for_end


async def test_who_leaves_as_news_come_waits_no_more() -> None:
    feed: Any = SimpleNamespace(job=SimpleNamespace(is_final=False), gone=False)
    changed = asyncio.Event()
    waiting = asyncio.create_task(wait_for_end(feed, changed, 30))
    for _ in range(3):
        await asyncio.sleep(0)
    changed.set()
    waiting.cancel()
    done, _ = await asyncio.wait({waiting}, timeout=10)
    assert done
    with pytest.raises(asyncio.CancelledError):
        await waiting
