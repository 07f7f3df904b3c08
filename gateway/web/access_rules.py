"""Which scope each route takes. One that is not listed is for admins, and a test fails until it is."""

from __future__ import annotations

from gateway.domain.api_key import Scope

#: For everybody, with and without a key.
OPEN = frozenset({"GET /health", "GET /health/live", "GET /", "GET /docs", "GET /redoc", "POST /session"})
_SCOPES: dict[Scope, tuple[str, ...]] = {
    Scope.READ: (
        "GET /jobs",
        "GET /jobs/{job_id}",
        "GET /jobs/{job_id}/status",
        "GET /jobs/{job_id}/logs",
        "POST /jobs/{job_id}/stream-token",
        "GET /jobs/{job_id}/items",
        "GET /events",
        "GET /dead-letters",
        "GET /schedules",
        "GET /schedules/{schedule_id}",
        "GET /schedules/{schedule_id}/next",
        "GET /schedules/{schedule_id}/items",
        "GET /schedules/{schedule_id}/history",
        "GET /jobs/scrape/{run_id}",
        "GET /jobs/sites",
        "GET /spiders",
        "GET /session",
        "DELETE /session",
    ),
    Scope.CRAWL: (
        "POST /crawl",
        "POST /jobs/{job_id}/cancel",
        "POST /jobs/{job_id}/retry",
        "DELETE /jobs/{job_id}",
        "POST /dead-letters/{letter_id}/requeue",
        "DELETE /dead-letters/{letter_id}",
        "POST /schedules",
        "PATCH /schedules/{schedule_id}",
        "DELETE /schedules/{schedule_id}",
        "POST /schedules/{schedule_id}/pause",
        "POST /schedules/{schedule_id}/resume",
        "POST /schedules/{schedule_id}/run",
        "POST /jobs/scrape",
        "GET /sites",
        "GET /sites/{name}",
        "GET /targets",
        "GET /targets/{target_id}",
    ),
    Scope.ADMIN: (
        "POST /sites",
        "PATCH /sites/{name}",
        "DELETE /sites/{name}",
        "POST /targets",
        "PATCH /targets/{target_id}",
        "DELETE /targets/{target_id}",
        "POST /projects/{project}/versions",
        "DELETE /projects/{project}/versions/{version}",
        "POST /scheduler/run",
        "GET /scheduler/status",
        "GET /jobs/queue/status",
        "GET /jobs/health",
        "GET /nodes",
        "POST /nodes/{node}/drain",
        "POST /nodes/{node}/resume",
        "GET /nodes/{node}/scrapyd/{path}",
        "POST /nodes/{node}/scrapyd/cancel.json",
        "GET /metrics",
        "GET /audit",
    ),
}
RULES: dict[str, Scope] = {route: scope for scope, routes in _SCOPES.items() for route in routes}
