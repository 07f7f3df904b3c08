"""A stand-in for the gateway: a real HTTP server that answers from a script, and the CLI as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import warm
from stores import free_port

JOB = "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
END = {"status": "finished", "completed_pages": 3, "items_count": 2, "errors_count": 0, "message": None}


class Request(NamedTuple):
    path: str
    query: str
    headers: dict[str, str]
    body: Any


class Answer(NamedTuple):
    """What the stand-in says, once it was asked for the path `after`. `broken` drops the connection in the middle of
    the body.
    """

    status: int = 200
    body: Any = None
    broken: bool = False
    content_type: str = "application/json"
    after: str = ""


def _read(body: bytes) -> Any:
    try:
        return json.loads(body or b"null")
    except ValueError:
        return body


class StandIn(ThreadingHTTPServer):
    """Answers each `METHOD /path` with its answers, one after the other, the last for ever."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.script: dict[str, list[Answer]] = {}
        self.requests: list[Request] = []

    def says(self, route: str, *answers: Answer) -> None:
        self.script[route] = list(answers)

    def asked(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(Request(parts.path, parts.query, headers, _read(body)))
        answers = self.server.script.get(f"{self.command} {parts.path}", [Answer(404, {"detail": "?"})])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        end = time.monotonic() + 60
        while answer.after and not self.server.asked(answer.after) and time.monotonic() < end:
            time.sleep(0.01)
        data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        if answer.status != 204:
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(data) + 10 * answer.broken))
        self.end_headers()
        if answer.status != 204:
            self.wfile.write(data)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def gateway() -> Iterator[StandIn]:
    with StandIn() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(gateway: StandIn, tmp_path: Path) -> Run:
    """Run `discoverybot …` against the stand-in, in a folder of its own."""

    def run_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        told = {"DISCOVERYBOT_URL": gateway.url, "COLUMNS": "200"}
        return warm.run("gateway.cli.main", *arguments, env={**os.environ, **told, **environment}, cwd=tmp_path)

    return run_command


def free_ports() -> tuple[str, str]:
    """Two that nobody has."""
    return str(free_port()), str(free_port())


def sse(*events: tuple[str, str | None, dict[str, Any]]) -> bytes:
    """Server-sent events: (name, id, data)."""
    lines = [
        f"event: {name}\n" + (f"id: {identity}\n" if identity else "") + f"data: {json.dumps(data)}\n\n"
        for name, identity, data in events
    ]
    return "".join(["retry: 50\n\n", *lines]).encode()


def log(text: str, level: str = "INFO") -> dict[str, str]:
    return {"ts": "2027-06-01T09:00:01.250Z", "level": level, "logger": "seo", "msg": text}


def stream(*events: tuple[str, str | None, dict[str, Any]], broken: bool = False) -> Answer:
    return Answer(200, sse(*events), broken, "text/event-stream")
