"""`discoverybot files`: what a crawl has written as files."""

from __future__ import annotations

import sys
from urllib.parse import quote

from gateway.cli.api import Api, ApiError
from gateway.cli.console import err, gateway_url, new_table, out, print_json, program
from gateway.cli.crawl import STDOUT, check_writable, writing
from gateway.cli.options import JSON, URL, argument, option, taking
from gateway.cli.resources import JOBS


@taking(
    JOBS.parameter("job_id"),
    argument("name", "[NAME]", "The file to fetch, as the list has it. Without it, list them.", default=None),
    option("output", "Where to write the file; `-` is stdout.", "--output", "-o", default=STDOUT, metavar="FILE"),
    option("attempt", "As this attempt wrote it. Default: the latest that did.", kind=int, min=1),
    JSON,
    URL,
)
def files(*, job_id: str, name: str | None, output: str, attempt: int | None, as_json: bool, url: str | None) -> None:
    """The files that a crawl has written: images, downloads, feeds."""
    api = Api(gateway_url(url))
    if name is not None:
        _fetch(api, job_id, name, output, attempt)
        return
    job = JOBS.find(api, job_id)
    answer = api.get_all(f"/jobs/{job}/files", attempt=attempt, limit=1000)
    if as_json:
        print_json(answer)
        return
    out.print(
        new_table("*NAME name, >BYTES size, TYPE type, ATTEMPT attempt, WRITTEN modified_at:time", answer["files"])
    )
    if answer["pending"]:
        err.print("more may come: the job has not ended, or the file store was away at its end")
    if answer["files"]:
        err.print(f"fetch one with `{program()} files {job} NAME -o FILE`")


def _fetch(api: Api, job_id: str, name: str, output: str, attempt: int | None) -> None:
    if output == STDOUT and sys.stdout.isatty():
        raise ApiError("output: a terminal would obey what is in a file: name one with -o, or pipe it somewhere")
    check_writable(output)
    path = f"/jobs/{JOBS.find(api, job_id)}/files/{quote(name)}"
    with api.download(path, attempt=attempt) as pieces, writing(output) as file:
        for piece in pieces:
            file.write(piece)
    if output != STDOUT:
        err.print(f"file: {output}")
