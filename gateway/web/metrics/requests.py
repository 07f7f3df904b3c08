"""What one gateway process measures of itself: its requests, its streams, and the process."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
#: Whatever is no route of ours: its path is the client's invention.
_NO_ROUTE = "unmatched"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SERVER_ERROR = 500


class ProcessMetrics:
    """One an application, so that two in one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.requests = Counter(
            "discoverybot_http_requests",
            "Requests that were answered, by route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "discoverybot_http_request_duration_seconds",
            "Seconds until the answer began; how long a stream goes on after that does not count.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.streams = Gauge(
            "discoverybot_stream_clients", "Clients that follow an event stream now.", registry=self.registry
        )


class RequestMeter:
    """ASGI middleware, the outermost: it sees what is answered, also for what nobody foresaw."""

    def __init__(self, app: ASGIApp, metrics: ProcessMetrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = _Request(self.metrics, scope, send)
        try:
            await self.app(scope, receive, request.send)
        finally:
            request.ended()


class _Request:
    def __init__(self, metrics: ProcessMetrics, scope: Scope, send: Send) -> None:
        self._metrics = metrics
        self._scope = scope
        self._send = send
        self._began = time.perf_counter()
        self._is_answered = False
        self._streams = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._answered(message["status"])
            if _is_stream(message):
                self._streams = True
                self._metrics.streams.inc()
        await self._send(message)

    def ended(self) -> None:
        if self._streams:
            self._metrics.streams.dec()
        if not self._is_answered:
            self._answered(_SERVER_ERROR)

    def _answered(self, status: int) -> None:
        self._is_answered = True
        method = self._scope["method"] if self._scope["method"] in _METHODS else "other"
        route = getattr(self._scope.get("route"), "path", _NO_ROUTE)
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(method, route).observe(time.perf_counter() - self._began)


def _is_stream(start: Message) -> bool:
    headers = dict(start.get("headers", ()))
    return bool(headers.get(b"content-type", b"").startswith(b"text/event-stream"))
