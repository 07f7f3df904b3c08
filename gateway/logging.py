"""Writes log events, our own and those of libraries, as JSON lines, with the ids of their context, such as a job's
id.
"""

from __future__ import annotations

import logging
import re
import sys
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, TextIO

import orjson
import structlog
from structlog.types import EventDict, Processor

#: Loggers of libraries that log too much at `info`. We log the results of tasks ourselves.
_QUIET = (
    "httpx2",
    "httpcore2",
    "pymongo",
    "urllib3",
    "amqp",
    "kombu",
    "celery.worker.strategy",
    "celery.app.trace",
    "celery.worker.consumer.connection",
    "celery.worker.consumer.mingle",
)


#: The user and password in a URL. Libraries put URLs into their errors.
_URL_SECRET = re.compile(r"""(://[^\s/:@"']*):[^\s/@"']+@""")


def _without_colour(_: Any, __: str, event: EventDict) -> EventDict:
    # uvicorn's message again, with colours for terminals
    event.pop("color_message", None)
    return event


def _to_json(event: EventDict, **_: Any) -> str:
    # an id that a user has chosen may contain half a surrogate pair, which UTF-8 cannot encode: it becomes a "?"
    try:
        return _without_secrets(orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode())
    except TypeError:
        plain = {str(key): str(value).encode("utf-8", "replace").decode() for key, value in event.items()}
        return _without_secrets(orjson.dumps(plain).decode())


def _without_secrets(line: str) -> str:
    return _URL_SECRET.sub(r"\1:***@", line) if "@" in line else line


_CONTEXT: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
)
_DETAILS: tuple[Processor, ...] = (
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    structlog.processors.StackInfoRenderer(),
    structlog.processors.format_exc_info,
)
_RENDER = structlog.processors.JSONRenderer(serializer=_to_json)


def configure(level: str = "info", *, stream: TextIO | None = None) -> None:
    """Send structlog's and the standard library's events to `stream` (stderr) as JSON lines.

    Fields: `ts`, `level`, `logger`, `event`, and those bound in `structlog.contextvars` (`request_id`,
    `correlation_id`, `job_id`, `run_id`, `site_name`, `task_id`). Called once, at the start of a process.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_CONTEXT, structlog.stdlib.ExtraAdder(), _without_colour, *_DETAILS],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _RENDER],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    structlog.configure(
        processors=[*_CONTEXT, *_DETAILS, _RENDER],
        wrapper_class=structlog.make_filtering_bound_logger(root.level),
        logger_factory=partial(_Lines, handler),
        cache_logger_on_first_use=True,
    )


class _Lines:
    """Writes our own lines directly to the handler's stream. A log record of the standard library would take several
    times as long.
    """

    _named = structlog.stdlib.LoggerFactory(ignore_frame_names=[__name__])

    def __init__(self, handler: logging.StreamHandler[TextIO], *names: Any) -> None:
        self.name = self._named(*names).name
        self._handler = handler

    def write(self, line: str) -> None:
        handler = self._handler
        # a full disk or a closed pipe must not make a request fail
        with handler.lock or nullcontext(), suppress(OSError, ValueError):
            handler.stream.write(line + "\n")
            handler.stream.flush()

    debug = info = warning = error = critical = exception = msg = write
