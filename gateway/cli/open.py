"""`discoverybot open`: the console in a browser."""

from __future__ import annotations

import os
import sys
import webbrowser

from gateway.cli.api import Api
from gateway.cli.console import gateway_url, out
from gateway.cli.options import URL, argument, taking
from gateway.cli.resources import JOBS

_ABOUT = "A job's id, or how it begins. Without it: the first page."


@taking(argument("job_id", "[JOB]", _ABOUT, default=None, autocompletion=JOBS.complete), URL)
def open_page(*, job_id: str | None, url: str | None) -> None:
    """Open the console, or a job's page there, in the browser; where there is no desktop, print its address."""
    api = Api(gateway_url(url))
    page = api.page(job_id and JOBS.find(api, job_id))
    out.print(page, soft_wrap=True)
    if _has_desktop():
        webbrowser.open(page)


def _has_desktop() -> bool:
    """Elsewhere Python may open a browser for terminals, which runs none of the console's scripts."""
    return sys.platform in {"darwin", "win32"} or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
