from __future__ import annotations

import subprocess
import sys
import time

import pytest
from otlp import collecting
from receivers import Receiver, never

from gateway.tracing import PARTING, Tracing

#: More than the SDK keeps.
MANY = 5000


def test_spans_cost_no_time_where_the_collector_is_silent_and_the_end_little() -> None:
    with Receiver(never, address="127.0.0.1") as silent:
        tracing = Tracing(silent.url(""), "a-test")
        began = time.monotonic()
        for _ in range(MANY):
            tracing.request("POST", None).end()
        made = time.monotonic()
        tracing.close()
        # ten batches, each of which would wait for `PARTING` if a span had to wait for the collector
        assert made - began < 5 * PARTING
        assert time.monotonic() - made < 2 * PARTING
        # again, if the first call was given up before the end
        assert set(silent.paths()) == {"/v1/traces"}


def test_the_last_spans_are_sent_at_the_end_under_the_services_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    with collecting() as collector:
        for name in ("", "ours"):
            monkeypatch.setenv("OTEL_SERVICE_NAME", name)
            tracing = Tracing(f"{collector.url}/", "discoverybot-gateway")
            tracing.request("POST", None).end()
            tracing.close()
        assert [span.service for span in collector.spans] == ["discoverybot-gateway", "ours"]
        assert collector.paths == {"/v1/traces"}


def test_without_an_endpoint_nothing_of_it_is_loaded() -> None:
    """The gateway, and what `celery -A celery_app` loads."""
    code = (
        "import sys, celery_app, gateway.application as web, gateway.web.container\n"
        "web.create_app()\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.exporter', 'gateway.tracing'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.returncode) == ("[]\n", 0), ran.stderr
