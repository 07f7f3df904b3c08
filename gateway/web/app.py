"""The gateway: `uvicorn gateway.web.app:create_app --factory`, or `python -m gateway.web`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version

from fastapi import Depends, FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from gateway import logging
from gateway.settings import Settings
from gateway.web import errors
from gateway.web.access import authorise
from gateway.web.audit import Audit
from gateway.web.body_limit import BodyLimit
from gateway.web.cors import cors_rules
from gateway.web.failed_logins import FailedLogins
from gateway.web.key_guard import KeyGuard
from gateway.web.known_parameters import refuse_unknown_parameters
from gateway.web.loopback_guard import LoopbackGuard
from gateway.web.metrics.requests import ProcessMetrics, RequestMeter
from gateway.web.openapi import DescribedAPI
from gateway.web.parts import gateway_parts
from gateway.web.request_context import RequestContext
from gateway.web.request_rate import RequestRate
from gateway.web.routes import (
    audit,
    crawl,
    dead_letters,
    events,
    health,
    items,
    jobs,
    logs,
    metrics,
    node_console,
    nodes,
    projects,
    queue,
    reference,
    scheduler,
    schedules,
    scrape,
    session,
    sites,
    spiders,
    stream_token,
    targets,
)
from gateway.web.schemas.problem import problems
from gateway.web.security_headers import SecurityHeaders

_DESCRIPTION = """
POST a crawl, watch it live, collect the result.

Errors are `{"error": {"code", "message", "detail"}, "request_id"}`, times are UTC, unknown fields are refused.
Once there are keys every call takes one: `Authorization: Bearer db_…`.
Send `X-Request-ID` to choose a request's id yourself; it becomes the job's `correlation_id`.
"""
_TAGS = [
    {"name": "crawls", "description": "Ask for work."},
    {"name": "jobs", "description": "Watch it, collect its results, end it, run it again."},
    {"name": "schedules", "description": "What is run again and again: when, and what became of it."},
    {"name": "sites", "description": "Where to search, what for, and how often; and to search it now."},
    {"name": "platform", "description": "What can be run, where, and whether all is well."},
]

# order matters: `/jobs/queue/status` and its like come before `/jobs/{job_id}`
_ROUTES = (
    *(reference, crawl),
    *(sites, scrape, queue, jobs, logs, stream_token, items, dead_letters, events),
    *(scheduler, schedules, targets),
    *(spiders, projects, nodes, node_console, health, metrics, session, audit),
)


def create_app(settings: Settings | None = None) -> FastAPI:
    """Called by a server, without settings: they come from the environment, and logging is set up too.

    Raises `SettingsError` that names what is wrong with the environment.
    """
    if settings is None:
        settings = Settings.load()
        logging.configure(settings.log_level)
    measured = ProcessMetrics()
    app = DescribedAPI(
        title="DiscoveryBot",
        version=version("discoverybot"),
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        lifespan=_lifespan(settings),
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(authorise), Depends(refuse_unknown_parameters)],
        # a slash too many is a wrong address, not a reason to send a body twice
        redirect_slashes=False,
        middleware=_middleware(settings, measured),
        responses=problems(401, 403, 422, 429, 500),
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.process_metrics = measured
    errors.install(app)
    for module in _ROUTES:
        app.include_router(module.router)
    reference.mount_assets(app)
    return app


def _middleware(settings: Settings, measured: ProcessMetrics) -> list[Middleware]:
    """The outermost first."""
    origins = settings.gateway_cors_origins
    return [
        Middleware(RequestMeter, metrics=measured),
        Middleware(SecurityHeaders),
        *([Middleware(CORSMiddleware, **cors_rules(origins))] if origins else []),
        Middleware(RequestContext),
        Middleware(LoopbackGuard, host=settings.gateway_host, origins=origins),
        Middleware(FailedLogins, origins=origins),
        Middleware(KeyGuard, required=settings.serves_others),
        Middleware(RequestRate, setting=settings.gateway_rate_limit),
        Middleware(Audit),
        Middleware(BodyLimit),
    ]


def _lifespan(settings: Settings) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with gateway_parts(settings) as parts:
            app.state.parts = parts
            app.state.event_streams = parts.streams
            yield

    return lifespan
