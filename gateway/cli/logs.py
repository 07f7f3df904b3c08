"""`discoverybot logs`: the log of a crawl, so far or live."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from gateway.cli.api import Api
from gateway.cli.console import out
from gateway.cli.crawl import watch
from gateway.cli.gateway_address import gateway_url
from gateway.cli.log_view import log_line
from gateway.cli.options import JobId, Level, Url


def logs(
    job_id: JobId,
    *,
    follow_log: Annotated[bool, typer.Option("--follow", "-f", help="Go on to the end of the crawl.")] = False,
    level: Level = None,
    url: Url = None,
) -> None:
    """The log of a crawl. With -f the exit code is that of `crawl`."""
    api = Api(gateway_url(url))
    api.get(f"/jobs/{job_id}/status")  # says at once if there is no such job
    if follow_log:
        raise typer.Exit(watch(api, job_id, out, level))
    api.client.headers["Accept"] = "application/x-ndjson"
    torn = b""
    with api.download(f"/jobs/{job_id}/logs", level=level) as pieces:
        for piece in pieces:
            *lines, torn = (torn + piece).split(b"\n")
            for line in lines:
                out.print(log_line(json.loads(line)), soft_wrap=True)
