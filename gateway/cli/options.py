"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.domain.log_line import LEVELS

Url = Annotated[
    str | None,
    typer.Option(
        "--url", help="The gateway. Default: DISCOVERYBOT_URL, else the stack that runs here.", show_default=False
    ),
]
JobId = Annotated[str, typer.Argument(metavar="ID", help="A job's id.")]


def _known_level(name: str | None) -> str | None:
    if name is not None and name.upper() not in LEVELS:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(LEVELS)}")
    return name and name.upper()


Level = Annotated[
    str | None,
    typer.Option(
        "--level",
        metavar="LEVEL",
        help="Only lines of at least this level (DEBUG … CRITICAL).",
        callback=_known_level,
        show_default=False,
    ),
]
