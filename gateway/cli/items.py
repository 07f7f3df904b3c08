"""`discoverybot items`: what a crawl found, to a file or to stdout."""

from __future__ import annotations

import codecs
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from gateway.cli.api import Api, ApiError
from gateway.cli.console import err, visible, visible_json
from gateway.cli.gateway_address import gateway_url
from gateway.cli.options import JobId, Url

STDOUT = "-"
FORMATS = ("jsonl", "json", "csv")


Format = Annotated[
    str | None,
    typer.Option("--format", help="jsonl, json or csv. Default: by the file's name.", show_default=False),
]
EscapeFormulas = Annotated[
    bool, typer.Option("--escape-formulas", help="In a CSV, text that a spreadsheet would run gets a ' before it.")
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where to; `-` is stdout.")]


def items(
    job_id: JobId, *, item_format: Format = None, output: Output = STDOUT, escape_formulas: EscapeFormulas = False,
    url: Url = None,
) -> None:  # fmt: skip
    """The items of a crawl, also while it runs."""
    chosen = item_format or format_of(output)
    if chosen not in FORMATS:
        raise typer.BadParameter(f"{chosen!r} is none of {', '.join(FORMATS)}", param_hint="--format")
    check_writable(output)
    save_items(Api(gateway_url(url)), job_id, chosen, output, escape_formulas=escape_formulas)


def format_of(output: str) -> str:
    """By the file's name. Raises `BadParameter` for a name that says nothing."""
    suffix = Path(output).suffix.lstrip(".").lower()
    if output == STDOUT:
        return "jsonl"
    if suffix not in FORMATS:
        raise typer.BadParameter(f"{output!r} must end in .jsonl, .json or .csv", param_hint="--output")
    return suffix


def check_writable(output: str) -> None:
    """Raises `BadParameter` for a place at which no file can be made; asked before there is anything to lose."""
    folder = Path(output).absolute().parent
    if output == STDOUT or (folder.is_dir() and os.access(folder, os.W_OK) and not Path(output).is_dir()):
        return
    problem = "is a folder" if Path(output).is_dir() else f"the folder {folder} cannot be written to"
    raise typer.BadParameter(f"{output!r}: {problem}", param_hint="--output")


def save_items(api: Api, job_id: str, item_format: str, output: str, *, escape_formulas: bool = False) -> None:
    """All of them; a file is there whole or not at all. A terminal is shown what would control it."""
    query = {"format": item_format, "escape_formulas": "true" if escape_formulas else None}
    with api.download(f"/jobs/{job_id}/items", **query) as pieces, _writing(output) as file:
        to_terminal = output == STDOUT and sys.stdout.isatty()
        for piece in _visible_lines(pieces, item_format) if to_terminal else pieces:
            file.write(piece)
    if output != STDOUT:
        err.print(f"items: {output}")


def _visible_lines(pieces: Iterable[bytes], item_format: str) -> Iterator[bytes]:
    show, torn = (visible if item_format == "csv" else visible_json), ""
    for text in codecs.iterdecode(pieces, "utf-8", "replace"):
        *lines, torn = (torn + text).split("\n")
        yield "".join(show(line.removesuffix("\r")) + "\n" for line in lines).encode()
    yield show(torn).encode()


@contextmanager
def _writing(output: str) -> Iterator[BinaryIO]:
    if output == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(output).absolute()
    try:
        # a folder beside it: the same file system, and gone however this ends
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
            unfinished = Path(folder) / target.name
            with unfinished.open("wb") as file:
                yield file
            unfinished.replace(target)
    except OSError as error:
        raise ApiError(f"output: {output}: {error.strerror}") from None
