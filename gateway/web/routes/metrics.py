"""`GET /metrics`, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.services.platform_facts import FactReader
from gateway.web.dependencies import Parts
from gateway.web.metrics.platform import platform_families

router = APIRouter(tags=["platform"])


_DESCRIBED: dict[str, Any] = {
    "description": "Prometheus's text format",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


class _All(Collector):
    def __init__(self, *families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for families in self._families:
            yield from families


@router.get("/metrics", summary="Figures for Prometheus", response_class=Response, responses={200: _DESCRIBED})
def metrics(request: Request, parts: Parts) -> Response:
    """How the queue, the schedules, the nodes and the runs of the last hour fare, the same from every gateway; and
    this process's own requests and streams. Without MongoDB only the latter.
    """
    own: Iterable[Metric] = request.app.state.process_metrics.registry.collect()
    text = generate_latest(_All(own, platform_families(parts[FactReader].facts())))
    return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)
