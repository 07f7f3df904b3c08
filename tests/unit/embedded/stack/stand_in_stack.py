"""Runs a supervisor over stand-in processes: `python stand_in_stack.py TABLE.json READY.json [MODULE …]`.

TABLE is a list of `{"name", "code", "forkable"?, "needs"?, "port"?, "grace"?, "death_signal"?, "goes_last"?}`; READY
is written when all are ready and at each later start: `{name: pid}`. With MODULEs a zygote imports them.
STOP_SECONDS is how long all of them may take to stop.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from embedded.stack.child import StackLog
from embedded.stack.process import Process, listening, running
from embedded.stack.supervisor import STOP_SECONDS, Supervisor
from embedded.stack.zygote import StackZygote, warm_zygote

table_file, ready_file = map(Path, sys.argv[1:3])
modules = sys.argv[3:]


def command(row: dict[str, Any]) -> tuple[str, ...]:
    if not row.get("forkable"):
        return sys.executable, "-c", row["code"]
    Path(f"{row['name']}.py").write_text(row["code"])
    return sys.executable, "-m", row["name"], "an argument"


table = [
    Process(
        row["name"],
        command(row),
        env=row.get("env", {}),
        needs=tuple(row.get("needs", ())),
        probe=listening("127.0.0.1", row["port"]) if "port" in row else running,
        grace=row.get("grace", 10),
        death_signal=signal.Signals[row.get("death_signal", "SIGKILL")],
        forkable=row.get("forkable", False),
        goes_last=row.get("goes_last", False),
    )
    for row in json.loads(table_file.read_text())
]
ready = False


async def run(zygote: StackZygote | None) -> int:
    def note() -> None:
        if ready:
            temporary = ready_file.with_suffix(".new")
            temporary.write_text(json.dumps(supervisor.pids))
            temporary.replace(ready_file)

    async def announce() -> None:
        global ready  # noqa: PLW0603 - a script
        ready = True
        note()

    supervisor = Supervisor(
        table,
        cwd=ready_file.parent,
        log=StackLog([process.name for process in table], verbose=True),
        backoff_max=1,
        stray_grace=1,
        patience=2,
        stop_seconds=float(os.environ.get("STOP_SECONDS", STOP_SECONDS)),
        on_start=note,
        zygote=zygote,
    )
    return await supervisor.run(announce)


if modules:
    with warm_zygote(modules) as warm:
        code = asyncio.run(run(warm))
else:
    code = asyncio.run(run(None))
sys.exit(code)
