"""What the API says of itself is what programs are written against: it has to be complete."""

from __future__ import annotations

import re
from typing import Any

import pytest
from described import DOCUMENT

OPERATIONS = [
    pytest.param(path, operation, id=f"{method} {path}")
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


@pytest.mark.parametrize(("path", "operation"), OPERATIONS)
def test_each_operation_says_what_it_does_and_how_it_refuses(path: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["tags"]
    responses = operation["responses"]
    assert {"403", "422", "500"} <= set(responses)
    if "{job_id}" in path or "{schedule_id}" in path:
        assert {"404", "503"} <= set(responses)
    # whatever takes a body may find it too large
    assert "requestBody" not in operation or "413" in responses
    for status, response in responses.items():
        schema = response.get("content", {}).get("application/json", {}).get("schema", {})
        if int(status) >= 400 and not (path == "/health" and status == "503"):
            assert schema == {"$ref": "#/components/schemas/Problem"}


@pytest.mark.parametrize(("path", "operation"), OPERATIONS)
def test_no_parameter_may_be_null(path: str, operation: dict[str, Any]) -> None:
    for parameter in operation.get("parameters", []):
        assert "null" not in str(parameter["schema"]), parameter["name"]


#: One on each line, so that two changes seldom meet.
PATHS = {
    "/audit",
    *("/views", "/views/{view_id}"),
    "/keys",
    "/keys/{key_id}",
    "/crawl",
    "/crawl/preview",
    *("/alerts", "/alerts/rules", "/alerts/rules/preview", "/alerts/rules/{rule_id}"),
    *("/errors", "/errors/{error_id}", "/jobs/{job_id}/errors"),
    *("/alerts/{alert_id}", "/alerts/{alert_id}/silence"),
    "/datasets",
    "/datasets/{name}",
    "/datasets/{name}/changes",
    "/datasets/{name}/health",
    "/datasets/{name}/items",
    "/datasets/{name}/runs",
    "/datasets/{name}/runs/{run}",
    "/datasets/{name}/runs/{run}/accept",
    "/datasets/{name}/runs/{run}/export",
    "/datasets/{name}/runs/{run}/reject",
    "/datasets/{name}/schema",
    "/dead-letters",
    "/dead-letters/{letter_id}",
    "/dead-letters/{letter_id}/requeue",
    "/endpoints",
    "/endpoints/{endpoint_id}",
    "/endpoints/{endpoint_id}/deliveries",
    "/endpoints/{endpoint_id}/deliveries/resend",
    "/endpoints/{endpoint_id}/deliveries/{delivery_id}",
    "/endpoints/{endpoint_id}/secret",
    "/endpoints/{endpoint_id}/test",
    "/events",
    "/health",
    "/health/live",
    "/jobs",
    *("/jobs/bulk", "/jobs/count", "/jobs/points"),
    "/jobs/health",
    "/jobs/queue/status",
    "/jobs/scrape",
    "/jobs/scrape/{run_id}",
    "/jobs/sites",
    "/jobs/{job_id}",
    "/jobs/{job_id}/cancel",
    "/jobs/{job_id}/deliveries",
    "/jobs/{job_id}/deliveries/resend",
    "/jobs/{job_id}/deliveries/{delivery_id}",
    "/jobs/{job_id}/fields",
    "/jobs/{job_id}/files",
    "/jobs/{job_id}/files/{name}",
    "/jobs/{job_id}/items",
    "/jobs/{job_id}/logs",
    "/jobs/{job_id}/logs/index",
    "/jobs/{job_id}/logs/lines",
    "/jobs/{job_id}/logs/search",
    "/jobs/{job_id}/pause",
    "/jobs/{job_id}/progress",
    "/jobs/{job_id}/requests",
    "/jobs/{job_id}/resume",
    "/jobs/{job_id}/retry",
    "/jobs/{job_id}/runs",
    "/jobs/{job_id}/status",
    "/jobs/{job_id}/stream-token",
    "/jobs/{job_id}/timeline",
    "/metrics",
    "/nodes",
    "/nodes/invitations",
    "/nodes/join",
    "/nodes/{node}",
    "/nodes/{node}/drain",
    "/nodes/{node}/resume",
    "/nodes/{node}/scrapyd/cancel.json",
    "/nodes/{node}/scrapyd/{path}",
    "/projects",
    "/projects/{project}/days",
    "/projects/{project}/env",
    "/projects/{project}/env/{variable}",
    "/projects/{project}/rollback",
    "/projects/{project}/settings",
    "/projects/{project}/versions",
    "/projects/{project}/versions/{version}",
    "/projects/{project}/versions/{version}/activate",
    "/projects/{project}/versions/{version}/dependencies",
    "/scheduler/run",
    "/scheduler/status",
    "/schedules",
    "/schedules/calendar",
    "/schedules/{schedule_id}",
    "/schedules/{schedule_id}/days",
    "/schedules/{schedule_id}/history",
    "/schedules/{schedule_id}/items",
    "/schedules/{schedule_id}/next",
    "/schedules/{schedule_id}/pause",
    "/schedules/{schedule_id}/resume",
    "/schedules/{schedule_id}/run",
    "/session",
    "/sites",
    "/sites/{name}",
    "/sites/{name}/days",
    "/spiders",
    "/spiders/{project}/{spider}/days",
    "/spiders/{project}/{spider}/fields",
    "/targets",
    "/targets/{target_id}",
    "/webhooks/secret",
}


def test_what_is_not_there_yet_is_not_promised() -> None:
    assert set(DOCUMENT["paths"]) == PATHS


def test_every_reference_leads_to_a_schema() -> None:
    referred = set(re.findall(r"'#/components/schemas/(\w+)'", str(DOCUMENT)))
    assert {"Problem", "ErrorBody"} <= referred <= DOCUMENT["components"]["schemas"].keys()


def test_the_request_and_its_answer_have_examples() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["CrawlRequest"]["examples"]
    assert schemas["CrawlReceipt"]["examples"]
    assert schemas["CrawlRequest"]["additionalProperties"] is False
    assert schemas["CrawlRequest"]["required"] == ["spider"]
