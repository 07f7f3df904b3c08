"""`discoverybot spiders` and `deploy`: what can be run, and where it comes from."""

from __future__ import annotations

import re
import subprocess
import time
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from configparser import Error as ParsingError
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from gateway.cli.api import Api, ApiError
from gateway.cli.console import counted, err, gateway_url, new_table, out, print_json
from gateway.cli.options import JSON, URL, argument, flag, option, taking
from gateway.cli.requirements import EggError, Requirements, find_requirements
from gateway.cli.resources import print_node_answers
from gateway.contract.crawl import DEFAULT_PROJECT

#: What a spider without a schema takes.
_ANY_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}


@taking(
    option("project", "Only of this project."),
    option("version", "Only of this version."),
    flag("every", "Earlier versions, too.", "--all"),
    option("schema", "Print the JSON Schema of its parameters.", metavar="SPIDER"),
    JSON,
    URL,
)
def spiders(
    *, project: str | None, version: str | None, every: bool, schema: str | None, as_json: bool, url: str | None
) -> None:
    """Spiders that can be run, in the latest version of each project."""
    answer = Api(gateway_url(url)).get_all("/spiders", project=project, version=version, name=schema)
    wanted = [one for one in answer["spiders"] if every or version or one["latest"]]
    if schema:
        print_json(_schema(schema, wanted))
    elif as_json:
        print_json(answer)
    else:
        columns = "PROJECT project, VERSION version, SPIDER name, *DOES does"
        out.print(new_table(columns, wanted, version=lambda one: one["version"] or "", does=_does))


def _schema(name: str, found: list[dict[str, Any]]) -> Any:
    """Of our own spider where others have one of the same name."""
    if not found:
        raise ApiError(f"there is no spider {name!r}")
    one = min(found, key=lambda info: info["project"] != DEFAULT_PROJECT)
    return one["params_schema"] or _ANY_STRINGS


def _does(spider: dict[str, Any]) -> str:
    notes = [spider["description"]] if spider["description"] else []
    if spider["allowed_domains"]:
        notes.append(f"keeps to {', '.join(spider['allowed_domains'])}")
    if spider["own_start"]:
        notes.append("decides by itself where it starts")
    if not spider["needs_urls"]:
        notes.append("has start URLs of its own")
    return "; ".join(notes)


# --- a Scrapy project as an egg: a ZIP file of its packages, and a note that says where its settings are.
#
# What `scrapyd-deploy` makes of a project without a setup.py of its own, but nothing of the project is run for it,
# and files beside the modules (templates, word lists) come along.

#: Never part of what is deployed, at the top of a project.
_LEFT_OUT = frozenset({"tests", "test", "build", "dist", "docs", "setup.py", "conftest.py"})
_ENTRY_POINTS = "EGG-INFO/entry_points.txt"


class ScrapyProject(NamedTuple):
    folder: Path
    #: Dotted name of its settings module.
    settings: str
    #: What scrapy.cfg says that it is deployed as, else its settings' package.
    name: str
    #: What scrapy.cfg says of its version: one, or `GIT` or `HG`.
    version: str | None = None


def read_project(folder: Path) -> ScrapyProject:
    """Raises `EggError` where there is no scrapy.cfg that says where the settings are."""
    path = folder / "scrapy.cfg"
    config = ConfigParser(interpolation=None, strict=False)
    try:
        if not config.read(path, encoding="utf-8"):
            raise EggError(_no_project(folder))
        settings = config.get("settings", "default", fallback="")
    except (ParsingError, UnicodeDecodeError) as error:
        raise EggError(f"{path} cannot be read: {error}") from None
    if not settings:
        raise EggError(f"{path} does not say where the settings are: [settings] default = <package>.settings")
    if not _is_module(folder, settings):
        raise EggError(f"{path} says that the settings are {settings}, but there is no such module in {folder}")
    name = _of_target(config, "project") or settings.partition(".")[0]
    return ScrapyProject(folder, settings, name, _of_target(config, "version"))


def _no_project(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder}: there is no such folder, and no such egg"
    # not to any depth: the folder may be somebody's home
    found = (path for depth in range(1, 4) for path in folder.glob("*/" * depth + "scrapy.cfg"))
    inside = sorted(path.parent.relative_to(folder).as_posix() for path in found)
    if inside:
        return f"{folder} is not a Scrapy project, but has some in it; deploy one of them: {', '.join(inside)}"
    settings = sorted([*folder.glob("settings.py"), *folder.glob("*/settings.py")])
    example = ".".join(settings[0].relative_to(folder).with_suffix("").parts) if settings else "<package>.settings"
    return (
        f"{folder} is not a Scrapy project: it has no scrapy.cfg. If its settings are {example}, write one with the "
        f"lines [settings] and default = {example}"
    )


def build_egg(project: ScrapyProject, version: str, target: Path) -> None:
    """Write the egg to `target`. Raises `OSError`."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as egg:
        for path in _members(project):
            egg.write(path, path.relative_to(project.folder).as_posix())
        egg.writestr("EGG-INFO/PKG-INFO", f"Metadata-Version: 1.1\nName: {project.name}\nVersion: {version}\n")
        egg.writestr(_ENTRY_POINTS, f"[scrapy]\nsettings = {project.settings}\n")


def project_of_egg(path: Path) -> str:
    """The package that its settings are in. Raises `EggError` for what is no egg of a Scrapy project."""
    config = ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    try:
        with zipfile.ZipFile(path) as egg:
            config.read_string(egg.read(_ENTRY_POINTS).decode("utf-8", "replace"))
    except (zipfile.BadZipFile, OSError):
        raise EggError(f"{path} is not an egg: it is not a ZIP file") from None
    except (KeyError, ParsingError):
        pass
    settings = config.get("scrapy", "settings", fallback="").strip()
    if not settings:
        raise EggError(f"{path} is not an egg of a Scrapy project: it does not say where its settings are")
    return settings.partition(".")[0]


def _of_target(config: ConfigParser, option: str) -> str | None:
    """What the first of scrapy.cfg's targets that says something says: `[deploy]`, `[deploy:live]`."""
    targets = (name for name in config.sections() if name == "deploy" or name.startswith("deploy:"))
    values = (config.get(target, option, fallback="").strip() for target in targets)
    return next((value for value in values if value), None)


def _is_module(folder: Path, name: str) -> bool:
    path = folder.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _members(project: ScrapyProject) -> Iterator[Path]:
    own = project.settings.partition(".")[0]
    for path in sorted(project.folder.iterdir()):
        if path.name in _LEFT_OUT and path.stem != own:
            continue
        if path.is_dir() and (path.name == own or (path / "__init__.py").is_file()):
            yield from sorted(inner for inner in path.rglob("*") if inner.is_file() and _is_source(inner, path))
        elif path.suffix == ".py":
            yield path


def _is_source(path: Path, package: Path) -> bool:
    parts = path.relative_to(package).parts
    return path.suffix != ".pyc" and not any(part.startswith(".") or part == "__pycache__" for part in parts)


# --- the version, which may be that of the source: `GIT` and `HG` mean what they mean to `scrapyd-deploy`

#: What may not stand in a version; a node would replace it by the same.
_NOT_IN_A_VERSION = re.compile(r"[^A-Za-z0-9_.+-]")


def version_of(text: str | None, folder: Path) -> str:
    """`text`; for `GIT` and `HG` what the source is at; without one the time, in seconds. Raises `EggError`."""
    match text:
        case None:
            return str(int(time.time()))
        case "GIT":
            branch = _answer(folder, "git", "rev-parse", "--abbrev-ref", "HEAD")
            try:
                commit = _answer(folder, "git", "describe")
            except EggError:  # there is no tag
                commit = f"r{_answer(folder, 'git', 'rev-list', '--count', 'HEAD')}"
        case "HG":
            branch = _answer(folder, "hg", "branch")
            commit = f"r{_answer(folder, 'hg', 'tip', '--template', '{rev}')}"
        case _:
            return text
    return _NOT_IN_A_VERSION.sub("_", f"{commit}-{branch}")


def _answer(folder: Path, *command: str) -> str:
    """What the command says. Raises `EggError`."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603 - ours
    except OSError as error:
        raise EggError(f"version: {command[0]} cannot be run: {error.strerror}") from None
    except subprocess.CalledProcessError as error:
        raise EggError(f"version: {' '.join(command)}: {error.stderr.strip()}") from None
    return done.stdout.strip()


# --- `discoverybot deploy`: put a Scrapy project, or an egg, on every crawl node

#: Bytes that the gateway takes.
_MAX_EGG = 64 << 20
#: Each node imports every spider before it answers.
_TIMEOUT = httpx.Timeout(180, connect=5)
#: Seconds that the gateway may wait by itself for what an egg depends on, and between two looks how it goes on.
_WAIT, _LOOK = 2, 1

_SOURCE = "A Scrapy project (the folder of its scrapy.cfg), or an egg."


@taking(
    argument("source", "FOLDER|EGG", _SOURCE, kind=Path, default=Path()),
    option("project", "Its name. Default: as scrapy.cfg deploys it, else its package."),
    option("version", "Default: as scrapy.cfg says, else the time. GIT, HG: what the source is at."),
    option(
        "requirements", "What it depends on. Default: what the project has.", metavar="FILE", kind=Path, default=None
    ),
    flag("without", "Run it with what the nodes have.", "--no-requirements"),
    JSON,
    URL,
)
def deploy(
    *,
    source: Path,
    project: str | None,
    version: str | None,
    requirements: Path | None,
    without: bool,
    as_json: bool,
    url: str | None,
) -> None:
    """Deploy a Scrapy project to every crawl node; crawls that name no version get the one deployed last."""
    try:
        with TemporaryDirectory(prefix="discoverybot-egg-") as folder:
            name, version, egg = _egg(source, version, Path(folder))
            needs = None if without else _requirements(source, requirements)
            answer = _deployed(Api(gateway_url(url)), project or name, version, egg, needs)
    except ApiError as error:
        nodes = error.detail.get("nodes", ()) if isinstance(error.detail, dict) else ()
        if as_json or len({node["message"] for node in nodes}) <= 1:
            raise
        # each node's reason is told once
        print_node_answers(nodes)
        taken = sum(node["accepted"] for node in nodes)
        raise ApiError(f"deployed on {taken} of {len(nodes)} nodes", error.exit_code) from None
    if as_json:
        print_json(answer)
        return
    print_node_answers(answer["nodes"])
    out.print(f"{answer['project']} {version}: {counted(answer['spiders'], 'spider')}")


def _egg(source: Path, version: str | None, folder: Path) -> tuple[str, str, Path]:
    """The project's name, its version and its egg, built in `folder` if need be."""
    try:
        if source.is_file():
            return project_of_egg(source), version_of(version, source.resolve().parent), source
        found = read_project(source.resolve())
        version = version_of(version or found.version, found.folder)
        build_egg(found, version, egg := folder / "project.egg")
    except (EggError, OSError) as error:
        raise ApiError(str(error)) from None
    return found.name, version, egg


def _requirements(source: Path, file: Path | None) -> Requirements | None:
    try:
        if file is not None:
            return Requirements(file.name, file.read_bytes())
        return None if source.is_file() else find_requirements(source.resolve())
    except (EggError, OSError) as error:
        raise ApiError(str(error)) from None


def _deployed(api: Api, project: str, version: str, egg: Path, requirements: Requirements | None) -> Any:
    """What came of it, once all nodes have installed what it depends on."""
    while "dependencies_url" in (answer := _upload(api, project, version, egg, requirements)):
        _watch(api, answer["dependencies_url"])
    return answer


def _watch(api: Api, dependencies_url: str) -> None:
    """Tell what the installers say, until none is at work any more."""
    told = dict[str, str]()
    while building := [node for node in _dependencies(api, dependencies_url) if node["state"] == "building"]:
        for node in building:
            line = next(reversed(node["log"].splitlines()), "waits for its turn")
            if told.get(node["node"]) != line:
                err.print(f"{node['node']}: {line}", soft_wrap=True)
            told[node["node"]] = line
        time.sleep(_LOOK)


def _dependencies(api: Api, url: str) -> list[dict[str, Any]]:
    """Empty if nobody knows: a node that was started again meanwhile has forgotten it."""
    try:
        nodes: list[dict[str, Any]] = api.get(url)["nodes"]
    except ApiError:
        return []
    return nodes


def _upload(api: Api, project: str, version: str, egg: Path, requirements: Requirements | None) -> Any:
    if (size := egg.stat().st_size) > _MAX_EGG:
        raise ApiError(f"the egg has {size >> 20} MiB; {_MAX_EGG >> 20} are allowed")
    path = f"/projects/{quote(project, safe='')}/versions"
    params = {"version": version, "wait": _WAIT}
    with egg.open("rb") as file:
        if requirements is not None:
            files = {"egg": ("project.egg", file), "requirements": (requirements.name, requirements.content)}
            return api.post(path, params=params, files=files, timeout=_TIMEOUT)
        headers = {"Content-Type": "application/octet-stream"}
        return api.post(path, params=params, content=file, headers=headers, timeout=_TIMEOUT)
