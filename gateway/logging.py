"""Writes one JSON line per event, ours and our libraries', with the context's ids: request id, job id and so on."""

from __future__ import annotations

import logging
import re
import sys
from typing import Any, TextIO

import orjson
import structlog
from structlog.types import EventDict, Processor

#: Libraries that log too much at `info`; what came of a task we log ourselves.
_QUIET = (
    "httpx",
    "httpcore",
    "pymongo",
    "urllib3",
    "amqp",
    "kombu",
    "celery.worker.strategy",
    "celery.app.trace",
    "celery.worker.consumer.connection",
    "celery.worker.consumer.mingle",
)


#: The user and password before a URL's host; libraries put URLs into their errors.
_URL_SECRET = re.compile(r"""(://[^\s/:@"']*):[^\s/@"']+@""")


def configure(level: str = "info", *, stream: TextIO | None = None) -> None:
    """Send structlog's and the standard library's events to `stream` (stderr) as JSON lines.

    Fields: `ts`, `level`, `logger`, `event`, and those bound in `structlog.contextvars` (`request_id`,
    `correlation_id`, `job_id`, `run_id`, `site_name`, `task_id`). Called once, where a process begins.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        _without_colour,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(serializer=_to_json),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _without_colour(_: Any, __: str, event: EventDict) -> EventDict:
    # uvicorn's second spelling of its message, for terminals
    event.pop("color_message", None)
    return event


def _to_json(event: EventDict, **_: Any) -> str:
    # an id that a user has chosen may hold half a surrogate pair, which is not UTF-8: better a "?" than a lost line
    try:
        return _without_secrets(orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode())
    except TypeError:
        plain = {str(key): str(value).encode("utf-8", "replace").decode() for key, value in event.items()}
        return _without_secrets(orjson.dumps(plain).decode())


def _without_secrets(line: str) -> str:
    return _URL_SECRET.sub(r"\1:***@", line) if "@" in line else line
