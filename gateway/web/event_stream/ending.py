"""Waits for a job to end, told by the same messages that move its stream."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sse_starlette.sse import AppStatus

from gateway.web.event_stream.feed import Feed

#: Seconds between two looks at whether the server is told to stop, which nothing announces.
_LOOK = 1.0


async def wait_for_end(feed: Feed, changed: asyncio.Event, seconds: float) -> None:
    """Until the job is final or gone, the time is over, or the server is told to stop."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not (feed.job.is_final or feed.gone or AppStatus.should_exit):
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), _LOOK)
                changed.clear()
