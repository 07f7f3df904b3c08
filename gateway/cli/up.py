"""`discoverybot up`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from embedded.stack.up import UpOptions
from embedded.stack.up import up as run_stack
from gateway.settings import Settings


def up(
    *,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only our own lines, not the processes'.")] = False,
    free_ports: Annotated[bool, typer.Option("--free-ports", help="Let the system choose every port.")] = False,
    ready_file: Annotated[
        Path | None, typer.Option(help="When healthy, say there, as JSON, where all is.", show_default=False)
    ] = None,
) -> None:  # fmt: skip
    """Run the whole platform here, on loopback, until Ctrl-C. Exit code: 1 it never got ready, 2 refused."""
    raise typer.Exit(run_stack(Settings.load(), UpOptions(quiet, free_ports, ready_file)))
