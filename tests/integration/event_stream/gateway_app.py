"""The gateway's streams and nothing else, for a server process of its own: stores from the environment."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from pymongo.database import Database

from gateway.jobs.queries import JobQueries
from gateway.jobs.store import JobStore
from gateway.logs.store import LogStore
from gateway.schedules.store import ScheduleStore
from gateway.stores import mongo
from gateway.stores.mongo import Document
from gateway.web import errors
from gateway.web.call_queue import Threads
from gateway.web.event_stream.log_lines import StreamLimits
from gateway.web.event_stream.streams import EventStreams
from gateway.web.lasting import LastingAnswers
from gateway.web.routes import logs


def app_of(database: Database[Document], redis_url: str, limits: StreamLimits) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        stores = JobStore(database), LogStore(database), JobQueries(database), ScheduleStore(database)
        streams = EventStreams(
            redis_url, *stores, Threads(4, lambda: None), LastingAnswers(5000, 5000), limits=limits
        )
        app.state.event_streams = streams
        await streams.start()
        yield
        await streams.stop()

    app = FastAPI(lifespan=lifespan)
    errors.install(app)
    app.include_router(logs.router)
    app.include_router(logs.events_router)
    return app


def create_app() -> FastAPI:
    return app_of(mongo.connect(os.environ["TEST_MONGO"]), os.environ["TEST_REDIS"], StreamLimits())
