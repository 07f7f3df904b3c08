"""Puts the gateway together: the API's routes, the console's pages, and the middleware around both."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import metadata, version
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from gateway import logging
from gateway.console import alerts as alerts_pages
from gateway.console import audit as audit_page
from gateway.console import comparison as comparison_page
from gateway.console import crawl as crawl_page
from gateway.console import datasets as datasets_pages
from gateway.console import endpoints as endpoints_pages
from gateway.console import errors as errors_pages
from gateway.console import help as help_pages
from gateway.console import help_index, job, job_pictures, overview, pages, results, static_files
from gateway.console import jobs as job_lists
from gateway.console import keys as keys_page
from gateway.console import lost_fields as lost_fields_page
from gateway.console import nodes as nodes_page
from gateway.console import projects as projects_page
from gateway.console import requests as requests_page
from gateway.console import saved_views as views_pages
from gateway.console import schedules as schedules_pages
from gateway.console import sites as sites_pages
from gateway.console import spiders as spiders_page
from gateway.console.error_pages import ErrorPages
from gateway.settings import Settings
from gateway.web import errors
from gateway.web.container import gateway_parts
from gateway.web.dependencies import Route
from gateway.web.description import DescribedAPI
from gateway.web.guard import Guard
from gateway.web.inner_calls import RefusedCallError
from gateway.web.middleware import AnswerMiddleware, ProcessMetrics
from gateway.web.routes import (
    access,
    agents,
    alerts,
    bot_identity,
    crawl,
    datasets,
    differences,
    endpoints,
    environment,
    error_groups,
    fields,
    files,
    firecrawl,
    health,
    items,
    job_history,
    jobs,
    keys,
    log_search,
    logs,
    metrics,
    nodes,
    projects,
    reference,
    repair,
    requests,
    run_days,
    saved_views,
    schedules,
    scrape,
    sites,
    webhooks,
)
from gateway.web.schemas.event import described_events

# --- CORS: pages of the origins in `GATEWAY_CORS_ORIGINS` may do everything that their API key allows

#: Headers of an answer that such a page may read.
_EXPOSED = (
    *("X-Request-ID", "Location", "Retry-After", "WWW-Authenticate", "Content-Disposition"),
    *("RateLimit", "RateLimit-Policy"),
)
#: Headers that such a page may send besides those that every page may send.
_TAKEN = ("Authorization", "Last-Event-ID", "Idempotency-Key", "X-Request-ID")


def cors_rules(origins: Collection[str]) -> dict[str, Any]:
    """Arguments for Starlette's `CORSMiddleware`. Cookies are not allowed, because the console's cookie is only for
    our own pages.
    """
    return {
        "allow_origins": origins,
        "allow_methods": ("GET", "POST", "PUT", "PATCH", "DELETE"),
        "allow_headers": _TAKEN,
        "expose_headers": _EXPOSED,
    }


_DESCRIPTION = """
POST a crawl, watch it live, collect the result.

Errors are `{"error": {"code", "message", "detail"}, "request_id"}`, times are UTC, unknown fields are refused.
Later releases may answer with more fields, and with more values where an enumeration is beside `string`.
As soon as there are API keys, every call needs one: `Authorization: Bearer db_…`.
Send `X-Request-ID` to choose a request's id yourself; it becomes the job's `correlation_id`.
"""
_TAGS = [
    {"name": "crawls", "description": "Start crawls."},
    {"name": "jobs", "description": "Watch jobs, collect their results, stop them, and run them again."},
    {"name": "schedules", "description": "Repeat crawls, and see what became of each occurrence."},
    {"name": "datasets", "description": "Items across runs, and the changes that each run has made."},
    {"name": "sites", "description": "Sites to search, what to search for and how often; and searches at once."},
    {
        "name": "webhooks",
        "description": "Receivers of events, their secrets, and the result of each call.",
    },
    {"name": "alerts", "description": "Rules about runs and the platform, and what they have found."},
    {"name": "errors", "description": "What goes wrong in crawls, grouped by kind of error."},
    {"name": "spiders", "description": "Which spiders there are, and how their runs have gone."},
    {"name": "projects", "description": "Deployed versions of code, with their variables and settings."},
    {"name": "nodes", "description": "The machines that crawl."},
    {"name": "health", "description": "The platform's health: checks, the queue, metrics."},
    {"name": "access", "description": "Keys, browser sessions, and the audit log."},
    {"name": "console", "description": "What the console stores for its users."},
    {"name": "firecrawl", "description": "Routes for clients of Firecrawl."},
]

# order matters: routes such as `/jobs/queue/status` come before `/jobs/{job_id}`
_ROUTERS = (
    # first, because routes are searched in this order, and `POST /crawl` has to be fast
    *(crawl.router, reference.router),
    *(sites.router, scrape.router, jobs.health_router, jobs.router, logs.router, logs.token_router),
    log_search.router,
    *(items.router, fields.router, differences.router, requests.router, files.router, job_history.router),
    datasets.router,
    *(endpoints.router, endpoints.job_router, alerts.router),
    *(jobs.dead_letters_router, logs.events_router),
    *(schedules.scheduler_router, schedules.router, sites.targets_router),
    *(projects.spiders_router, projects.projects_router, environment.router, nodes.router, nodes.scrapyd_router),
    *(run_days.router, error_groups.router, repair.router),
    *(health.router, metrics.router, access.session_router, access.audit_router, keys.router, webhooks.router),
    *(saved_views.router, agents.router, bot_identity.router, firecrawl.router),
    # the console
    requests_page.router,
    help_pages.router,
    *(static_files.router, pages.router, overview.router, job.router, job_pictures.router, job_lists.router),
    results.router,
    *(crawl_page.router, schedules_pages.router, datasets_pages.router, sites_pages.router, endpoints_pages.router),
    *(alerts_pages.router, errors_pages.router, spiders_page.router, comparison_page.router, views_pages.router),
    *(lost_fields_page.router, help_index.router),
    *(projects_page.router, nodes_page.router, keys_page.router, audit_page.router),
)


def _routes() -> list[BaseRoute]:
    """The routes of all routers."""
    routes = [route for router in _ROUTERS for route in router.routes]
    check_routes(routes)
    return routes


def check_routes(routes: Sequence[BaseRoute]) -> None:
    """Check that each route is our own `Route`, which checks first whether the request is admitted, and calls
    blocking code in threads. Raises `TypeError`.
    """
    for route in routes:
        if isinstance(route, APIRoute) and not isinstance(route, Route):
            raise TypeError(f"{route.path}: its router has to be a `Router`")


#: Gathered when this module is imported, once for all apps of a process and its forks.
_ROUTES = _routes()
#: The events with which endpoints are called, for the API's description.
_EVENTS = described_events().routes


def create_app(settings: Settings | None = None) -> FastAPI:
    """The gateway's ASGI app. A server calls this without settings: then they are read from the environment, and
    logging is set up.

    Raises `SettingsError`, which names the invalid settings.
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
        **_about(),
        lifespan=_lifespan(settings),
        docs_url=None,
        redoc_url=None,
        # a path with an extra slash is refused, because a redirect would make the client send its body twice
        redirect_slashes=False,
        middleware=_layers(settings, measured),
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.process_metrics = measured
    app.state.help_archive, app.state.help_clone = help_pages.ARCHIVE, help_pages.CLONE
    errors.install(app)
    app.add_exception_handler(RefusedCallError, firecrawl.refused)
    app.router.routes.extend(_ROUTES)
    app.webhooks.routes.extend(_EVENTS)
    reference.mount_assets(app)
    return app


def _about() -> dict[str, Any]:
    """Where the API is, whose it is and where more is said of it, for its description."""
    told = metadata("discoverybot")
    urls = dict(url.split(", ", 1) for url in told.get_all("Project-URL", ()))
    return {
        "servers": [{"url": "/", "description": "The gateway that this description is of."}],
        "license_info": {"name": told["License-Expression"], "identifier": told["License-Expression"]},
        "contact": {"name": "DiscoveryBot", "url": urls["Issues"]},
        "openapi_external_docs": {"description": "Documentation", "url": urls["Documentation"]},
    }


def _layers(settings: Settings, measured: ProcessMetrics) -> list[Middleware]:
    """The middleware around every route, the outermost first."""
    origins = settings.gateway_cors_origins
    layers = [
        Middleware(
            AnswerMiddleware, metrics=measured, cors=cors_rules(origins) if origins else None, pages=ErrorPages
        ),
        Middleware(Guard, settings=settings),
    ]
    if settings.otel_exporter_otlp_endpoint:
        from gateway.tracing import TracedRequests  # noqa: PLC0415 - it needs an optional package

        layers.insert(0, Middleware(TracedRequests))
    return layers


def _lifespan(settings: Settings) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with gateway_parts(settings) as parts:
            app.state.parts = parts
            app.state.event_streams = parts.streams
            # all objects that exist now will stay, so let the garbage collector ignore them
            gc.freeze()
            try:
                yield
            finally:
                gc.unfreeze()

    return lifespan
