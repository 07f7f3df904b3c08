"""OpenTelemetry traces: the steps of a crawl, from its request to its webhooks, and how long each step took.

This module is imported only if traces are on, because it needs the extra `discoverybot[otel]`. Methods for which
spans are made are marked with `traced`; a process without traces runs no code of this module.

The `traceparent` in the job's document joins the spans of a crawl. The worker makes an attempt's span when it has the
facts, so spiders' processes and nodes make no spans. A job that no request started (a schedule's run, or a
repetition), or that an older gateway made, has a trace of its own, whose id is the job's id.
"""

from __future__ import annotations

import contextvars
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from importlib.metadata import version
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanKind, StatusCode, use_span
from opentelemetry.trace.propagation import set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.dispatch.dispatcher import Dispatch
from gateway.jobs.completion import Completion
from gateway.jobs.job import Attempt, Job, JobStatus
from gateway.jobs.outcome import Outcome
from gateway.jobs.submission import Receipt, RequestedCrawl, Submission
from gateway.nodes.store import Node
from gateway.signals.delivering import Webhooks
from gateway.signals.delivery_store import Delivery, host_of
from gateway.signals.endpoints import Endpoint
from gateway.signals.webhook_caller import CallResult
from gateway.sites.runs import RequestedRun, Scraping
from gateway.traced import Surrounding, surround

#: Seconds that a collector has to accept a batch. A batch that it does not accept is dropped.
EXPORT_SECONDS = 3.0
#: Seconds that a process has at its end to send its last spans.
PARTING = 2.0

_PARENT = "traceparent"
_PROPAGATOR = TraceContextTextMapPropagator()
#: The trace id for a span without a parent; 0 for a random id.
_OWN_TRACE: contextvars.ContextVar[int] = contextvars.ContextVar("own_trace", default=0)


class _Ids(RandomIdGenerator):
    def generate_trace_id(self) -> int:
        return _OWN_TRACE.get() or super().generate_trace_id()


def _from(traceparent: str | None) -> Context:
    """The parent's context; an empty one if `traceparent` is missing or malformed."""
    return _PROPAGATOR.extract({_PARENT: traceparent} if traceparent else {}, context=Context())


def _traceparent(span: Span) -> str | None:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context=set_span_in_context(span, Context()))
    return carrier.get(_PARENT)


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000) * 1_000_000


def _failed(span: Span, why: str | None = None) -> None:
    span.set_status(StatusCode.ERROR, why)


@contextmanager
def _open(span: Span) -> Iterator[Span]:
    """A context in which new spans are children of this span. For an error, only its class is recorded, because its
    message may contain a URL, or a spider's text.
    """
    with use_span(span, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except BaseException as error:
            _failed(span, type(error).__name__)
            raise
        finally:
            # a request's span may have ended already, when a stream began
            if span.is_recording():
                span.end()


class Tracing:
    """Makes the spans of this process, and sends them in batches, from a thread of its own. If the collector is slow
    or cannot be reached, spans are lost, but no caller waits. The queue is bounded (`OTEL_BSP_MAX_QUEUE_SIZE`).

    It must be made in the process that has the spans, after the last fork, because a fork does not have the thread.
    The SDK itself reads the `OTEL_…` variables for sampling, the service's name, and the headers for the collector.
    """

    def __init__(self, endpoint: str, service: str) -> None:
        """`endpoint`: the collector's URL without `/v1/traces`. `service`: the service's name, unless
        `OTEL_SERVICE_NAME` is set.
        """
        own = Resource.create({"service.version": version("discoverybot"), "service.instance.id": _instance()})
        if str(own.attributes[SERVICE_NAME]).startswith("unknown_service"):
            own = own.merge(Resource({SERVICE_NAME: service}))
        self._provider = TracerProvider(resource=own, id_generator=_Ids(), shutdown_on_exit=False)
        self._exporter: SpanExporter = _exporter(endpoint)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("discoverybot")
        surround(Spans(self).of_steps())

    def close(self) -> None:
        """Send the remaining spans, for at most `PARTING` seconds. Spans that end later are dropped."""
        surround({})
        # the SDK would wait for the collector for half a minute
        parting = threading.Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        parting.start()
        parting.join(PARTING)
        if parting.is_alive():
            # this also ends the exporter's waits between tries
            self._exporter.shutdown()

    def request(self, method: str, traceparent: str | None) -> Span:
        return self._tracer.start_span(method, _from(traceparent), SpanKind.SERVER, {"http.request.method": method})

    @contextmanager
    def step(self, name: str, kind: SpanKind = SpanKind.INTERNAL, **attributes: str | int) -> Iterator[Span]:
        """A new span within the current one."""
        with _open(self._tracer.start_span(name, kind=kind, attributes=_named(attributes))) as span:
            yield span

    @contextmanager
    def about(
        self, job: Job, name: str, kind: SpanKind = SpanKind.INTERNAL, **attributes: str | int
    ) -> Iterator[Span]:
        with _open(self._begin(job, name, attributes, kind=kind)) as span:
            yield span

    @contextmanager
    def of_job(
        self, job_id: str | None, traceparent: str | None, name: str, facts: Mapping[str, Any]
    ) -> Iterator[Span]:
        """As `about`, for an outgoing call, by the id of its job, so that the job need not be read."""
        about = {"job_id": job_id, **facts}
        with _open(self._start(job_id, traceparent, name, about, kind=SpanKind.CLIENT)) as span:
            yield span

    def attempt(self, job: Job, attempt: Attempt, outcome: Outcome) -> None:
        """Make the span of an attempt that is over. Its times are those of the node's clock."""
        if (end := attempt.exit) is None:
            return
        began = _nanoseconds(end.started_at or attempt.started_at or attempt.dispatched_at)
        facts = {"attempt": attempt.attempt, "node": attempt.node, "status": outcome.status.value}
        facts |= {"exit_code": end.exit_code, "signal": end.signal, "stopped_by": end.stopped_by}
        if job.progress is not None:
            facts |= job.progress.model_dump(include={"completed_pages", "items_count", "errors_count"})
        span = self._begin(job, "attempt", facts, start_time=began)
        if outcome.status is JobStatus.ERROR:
            _failed(span)
        span.end(max(began, _nanoseconds(end.ended_at)))

    def _begin(self, job: Job, name: str, attributes: Mapping[str, Any], **options: Any) -> Span:
        facts = {"job_id": job.id, "spider": job.spec.spider, "project": job.spec.project, **attributes}
        return self._start(job.id, job.traceparent, name, facts, **options)

    def _start(
        self, job_id: str | None, traceparent: str | None, name: str, facts: Mapping[str, Any], **options: Any
    ) -> Span:
        own = _OWN_TRACE.set(int(job_id, 16) if job_id else 0)
        try:
            return self._tracer.start_span(name, _from(traceparent), attributes=_named(facts), **options)
        finally:
            _OWN_TRACE.reset(own)


def _named(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes with our prefix, except those with a dot, whose names are OpenTelemetry's conventions."""
    return {
        name if "." in name else f"discoverybot.{name}": value for name, value in facts.items() if value is not None
    }


def _instance() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _exporter(endpoint: str) -> OTLPSpanExporter:
    own = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    timeouts = {"OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"}
    return OTLPSpanExporter(
        endpoint=own or f"{endpoint.rstrip('/')}/v1/traces",
        timeout=None if timeouts & os.environ.keys() else EXPORT_SECONDS,
    )


# --- the request

#: Requests that only read are traced only if the caller sends a `traceparent`. Otherwise pages that poll would fill
#: the collector with their traces.
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS = _READING | {"POST", "PUT", "PATCH", "DELETE"}
_SERVER_ERROR = 500
_STREAM = b"text/event-stream"


class TracedRequests:
    """The outermost ASGI middleware. It makes a span for each request, in the trace of its `traceparent` if it has
    one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == _PARENT.encode()), b"").decode("latin-1")
        if scope["method"] in _READING and not given:
            await self.app(scope, receive, send)
            return
        tracing: Tracing = scope["app"].state.parts[Tracing]
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        with _open(tracing.request(method, given)) as span:

            async def sent(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _answered(span, scope, message)
                await send(message)

            await self.app(scope, receive, sent)


def _answered(span: Span, scope: Scope, message: Message) -> None:
    status, route = message["status"], getattr(scope.get("route"), "path_format", None)
    span.set_attribute("http.response.status_code", status)
    span.set_attribute("discoverybot.request_id", scope.get("state", {}).get("request_id", ""))
    if route is not None:
        # never the path itself, because it may contain anything
        span.set_attribute("http.route", route)
        span.update_name(f"{scope['method']} {route}")
    if status >= _SERVER_ERROR:
        _failed(span)
    if any(name == b"content-type" and value.startswith(_STREAM) for name, value in message.get("headers", ())):
        # end the span now, because a stream may last for hours
        span.end()


# --- the steps that `gateway.traced` marks


class Spans:
    """Makes the span of each step. Each method gets the step, the service that does it, and the step's arguments."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def of_steps(self) -> dict[str, Surrounding]:
        return {
            "submit": self._submit,
            "start_run": self._start_run,
            "post_to_node": self._post_to_node,
            "conclude": self._conclude,
            "settle": self._settle,
            "call_webhook": self._call_webhook,
        }

    async def _submit(self, step: Surrounding, submission: Submission, order: RequestedCrawl) -> Receipt:
        with self._tracing.step("submit") as span:
            by = order.by._replace(traceparent=_traceparent(span))
            receipt: Receipt = await step(submission, order._replace(by=by))
            span.set_attributes({"discoverybot.job_id": receipt.job_id, "discoverybot.cached": receipt.cached})
            return receipt

    def _start_run(self, step: Surrounding, scraping: Scraping, order: RequestedRun) -> Job:
        with self._tracing.step("submit", site=order.site) as span:
            by = order.by._replace(traceparent=_traceparent(span))
            job: Job = step(scraping, order._replace(by=by))
            span.set_attribute("discoverybot.job_id", job.id)
            return job

    def _post_to_node(self, step: Surrounding, dispatch: Dispatch, job: Job, node: Node) -> None:
        with self._tracing.about(job, "dispatch", SpanKind.CLIENT, attempt=job.attempt, node=node.id):
            step(dispatch, job, node)

    def _conclude(
        self, step: Surrounding, completion: Completion, job: Job, attempt: Attempt, outcome: Outcome
    ) -> None:
        step(completion, job, attempt, outcome)
        self._tracing.attempt(job, attempt, outcome)

    def _settle(self, step: Surrounding, completion: Completion, *jobs: Job) -> None:
        with ExitStack() as spans:
            for job in jobs:
                if job.settled is False:
                    spans.enter_context(self._tracing.about(job, "settle", status=job.status.value))
            step(completion, *jobs)

    async def _call_webhook(
        self, step: Surrounding, webhooks: Webhooks, delivery: Delivery, endpoint: Endpoint | None
    ) -> CallResult:
        # only the host, because the paths of many webhooks are secret
        facts = {"server.address": host_of(endpoint.url if endpoint else delivery.url), "event": delivery.type}
        with self._tracing.of_job(delivery.job_id, delivery.traceparent, "webhook", facts) as span:
            result: CallResult = await step(webhooks, delivery, endpoint)
            if result.problem is not None:
                _failed(span, "the webhook did not accept the call")
            return result
