"""A collector of traces on loopback: OTLP over HTTP, decoded with OpenTelemetry's own messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_OK = 200


class Seen(NamedTuple):
    service: str
    name: str
    trace: str
    id: str
    #: Empty if the span has no parent.
    parent: str
    #: In nanoseconds.
    start: int
    end: int
    attributes: dict[str, Any]
    #: 2 is an error.
    status: int


#: Spans that a worker and a beat may both begin; the second one changes nothing.
_CONCURRENT = {"settle"}


class Collector:
    def __init__(self) -> None:
        self.spans: list[Seen] = []
        #: The paths that were requested.
        self.paths: set[str] = set()
        #: While this is cleared, requests are received and not answered.
        self.answers = threading.Event()
        self.answers.set()
        self.url = ""

    def of(self, trace: str) -> dict[str, Seen]:
        """The spans of a trace by name. Each name may occur once, except those that two processes can do at the same
        time.
        """
        spans = [span for span in list(self.spans) if span.trace == trace]
        by_name = {span.name: span for span in spans}
        again = [span for span in spans if span is not by_name[span.name]]
        assert {span.name for span in again} <= _CONCURRENT, spans
        return by_name

    def take(self, path: str, body: bytes) -> None:
        self.paths.add(path)
        self.answers.wait()
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _plain(group.resource.attributes)["service.name"]
            self.spans += [_seen(service, span) for scope in group.scope_spans for span in scope.spans]


def _plain(attributes: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in attributes}


def _seen(service: str, span: Any) -> Seen:
    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
    times = span.start_time_unix_nano, span.end_time_unix_nano
    return Seen(service, span.name, *ids, *times, _plain(span.attributes), span.status.code)


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(_OK)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        collector.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield collector
        finally:
            collector.answers.set()
            server.shutdown()
