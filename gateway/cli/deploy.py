"""`discoverybot deploy`: put a Scrapy project, or an egg, on every crawl node."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any
from urllib.parse import quote

import httpx
import typer
from rich.text import Text

from gateway.cli.api import Api, ApiError
from gateway.cli.console import counted, err, out
from gateway.cli.egg import EggError, build_egg, project_of_egg, read_project
from gateway.cli.gateway_address import gateway_url
from gateway.cli.options import Url

#: Bytes that the gateway takes.
_MAX_EGG = 64 << 20
#: Each node imports every spider before it answers.
_TIMEOUT = httpx.Timeout(180, connect=5)

Source = Annotated[
    Path, typer.Argument(metavar="FOLDER|EGG", help="A Scrapy project (the folder of its scrapy.cfg), or an egg.")
]
Project = Annotated[
    str | None,
    typer.Option(help="Its name. Default: as scrapy.cfg deploys it, else its package.", show_default=False),
]
Version = Annotated[str | None, typer.Option(help="Default: the time, in seconds since 1970.", show_default=False)]


def deploy(source: Source = Path(), *, project: Project = None, version: Version = None, url: Url = None) -> None:
    """Deploy a Scrapy project to every crawl node; crawls that name no version get the newest."""
    version = version or str(int(time.time()))
    with TemporaryDirectory(prefix="discoverybot-egg-") as folder:
        name, egg = _egg(source, version, Path(folder))
        answer = _upload(Api(gateway_url(url)), project or name, version, egg)
    _tell(answer["nodes"])
    out.print(f"{answer['project']} {version}: {counted(answer['spiders'], 'spider')}")


def _egg(source: Path, version: str, folder: Path) -> tuple[str, Path]:
    """The project's name and its egg, built in `folder` if need be."""
    try:
        if source.is_file():
            return project_of_egg(source), source
        found = read_project(source.resolve())
        build_egg(found, version, egg := folder / "project.egg")
    except (EggError, OSError) as error:
        raise ApiError(str(error)) from None
    return found.name, egg


def _upload(api: Api, project: str, version: str, egg: Path) -> Any:
    if (size := egg.stat().st_size) > _MAX_EGG:
        raise ApiError(f"the egg has {size >> 20} MiB; {_MAX_EGG >> 20} are allowed")
    path = f"/projects/{quote(project, safe='')}/versions"
    headers = {"Content-Type": "application/octet-stream"}
    try:
        with egg.open("rb") as file:
            return api.post(path, params={"version": version}, content=file, headers=headers, timeout=_TIMEOUT)
    except ApiError as error:
        if isinstance(error.detail, dict):
            _tell(error.detail.get("nodes", ()))
        raise


def _tell(answers: Any) -> None:
    for answer in answers:
        word = counted(answer["spiders"], "spider") if answer["accepted"] else answer["message"]
        mark = ("✓ ", "green") if answer["accepted"] else ("✗ ", "bold red")
        (out if answer["accepted"] else err).print(Text.assemble(mark, answer["node"], ": ", word), soft_wrap=True)
