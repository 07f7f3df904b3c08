"""An exit report as MongoDB can hold it: what a spider puts into its own account must not keep a job running.

A spider may say anything in its stats, and may even write its report itself.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import structlog

from gateway.domain.clock import truncate
from gateway.domain.node_files import EXIT, ExitReport, SpiderReport, fits_int64, read_record
from gateway.tailer.attempt import Attempt

log = structlog.get_logger()

#: What is kept of a spider's account.
MAX_STATS = 200
MAX_STATS_BYTES = 64 << 10
MAX_NAME = 200
MAX_TEXT = 2000
MAX_ERRORS = 10
MAX_LOG_TAIL = 8000
#: Tells how many stats are not there.
LEFT_OUT = "discoverybot/stats_left_out"


def read_facts(attempt: Attempt) -> ExitReport:
    """What `exit.json` says; where it cannot be understood, that. Raises `OSError`.

    Whoever writes a report writes a whole one. So what is there instead is the spider's own doing: its node has not
    lost it.
    """
    facts = read_record(attempt.folder / EXIT, ExitReport)
    if facts is not None:
        return _storable(facts)
    log.warning("exit_report_unreadable", attempt=str(attempt.id))
    written = datetime.fromtimestamp((attempt.folder / EXIT).lstat().st_mtime, UTC)
    why = f"{EXIT} is not what a node writes"
    return ExitReport(attempt=attempt.id.attempt, ended_at=truncate(written), exit_code=1, log_tail=why)


def _storable(facts: ExitReport) -> ExitReport:
    return facts.model_copy(
        update={
            "stopped_by": _cut(facts.stopped_by),
            "refused": _cut(facts.refused),
            "log_tail": facts.log_tail[-MAX_LOG_TAIL:] if facts.log_tail else facts.log_tail,
            "report": _account(facts.report) if facts.report else None,
        }
    )


def _account(report: SpiderReport) -> SpiderReport:
    return report.model_copy(
        update={
            "finish_reason": report.finish_reason[:MAX_TEXT],
            "errors": [
                {name: error[name][:MAX_TEXT] for name in ("url", "reason") if name in error}
                for error in report.errors[:MAX_ERRORS]
            ],
            "stats": _stats(report.stats),
        }
    )


def _cut(text: str | None) -> str | None:
    return text[:MAX_TEXT] if text else text


def _stats(stats: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    size = 0
    for key, value in stats.items():
        name, plain = _name(key), _plain(value)
        size += len(name.encode()) + len(str(plain).encode())
        if len(kept) == MAX_STATS or size > MAX_STATS_BYTES:
            kept[LEFT_OUT] = len(stats) - len(kept)
            break
        kept[name] = plain
    return kept


def _name(key: str) -> str:
    name = key[:MAX_NAME].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return f"_{name}" if not name or name.startswith("$") else name


def _plain(value: Any) -> Any:
    """Numbers that BSON, or JSON on the way out, cannot hold become text, and so does all that has parts."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if fits_int64(value) else str(value)[:MAX_TEXT]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return (value if isinstance(value, str) else json.dumps(value))[:MAX_TEXT]
