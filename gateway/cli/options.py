"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Url = Annotated[
    str | None,
    typer.Option(
        "--url", help="The gateway. Default: DISCOVERYBOT_URL, else the stack that runs here.", show_default=False
    ),
]
JobId = Annotated[str, typer.Argument(metavar="ID", help="A job's id.")]
Level = Annotated[
    str | None,
    typer.Option(
        "--level", metavar="LEVEL", help="Only lines of at least this level (DEBUG … CRITICAL).", show_default=False
    ),
]
