"""`discoverybot spiders` and `deploy`: what can be run, and where it comes from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any
from urllib.parse import quote

from packaging.requirements import InvalidRequirement, Requirement

from gateway.cli.api import Api, ApiError
from gateway.cli.bulk import confirm
from gateway.cli.commands import YES, complete_spiders
from gateway.cli.egg_building import Built, build_egg, project_of_egg, read_project, version_of
from gateway.cli.options import JSON, URL, argument, flag, option, taking
from gateway.cli.requirements import EggBuildError, EggRequirements, find_requirements, read_requirements, with_needs
from gateway.cli.resources import PROJECTS, print_node_answers, require_project
from gateway.cli.terminal import counted, err, gateway_url, new_table, out, print_json, program
from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.contract.requirements import OLDEST_SCRAPY, is_too_old, raised_day, raised_words

#: The parameters of a spider without a schema.
_ANY_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}


@taking(
    option("project", "Only of this project.", metavar="NAME", autocompletion=PROJECTS.complete),
    option("version", "Only of this version."),
    flag("every", "Earlier versions, too.", "--all"),
    option("schema", "Print the JSON Schema of its parameters.", metavar="SPIDER", autocompletion=complete_spiders),
    JSON,
    URL,
)
def spiders(
    *, project: str | None, version: str | None, every: bool, schema: str | None, as_json: bool, url: str | None
) -> None:
    """Spiders that can be run, in the latest version of each project."""
    api = Api(gateway_url(url))
    answer = api.get_all("/spiders", project=project, version=version, name=schema)
    if project is not None and not answer["spiders"]:
        require_project(api, project)
    wanted = [one for one in answer["spiders"] if every or version or one["latest"]]
    if schema:
        print_json(_schema(schema, wanted))
    elif as_json:
        print_json(answer)
    elif not wanted:
        err.print(f"no spiders: `{program()} deploy` deploys those of the project in this folder", soft_wrap=True)
    else:
        columns = "*PROJECT project, 1*VERSION version, *SPIDER name, 2*DOES does"
        out.print(new_table(columns, wanted, version=lambda one: one["version"] or "", does=_does))


def _schema(name: str, found: list[dict[str, Any]]) -> Any:
    """The schema of the spider. If several projects have one of this name, the platform's own is taken."""
    if not found:
        raise ApiError(f"there is no spider {name!r}")
    one = min(found, key=lambda info: info["project"] != DEFAULT_PROJECT)
    return one["params_schema"] or _ANY_STRINGS


def _does(spider: dict[str, Any]) -> str:
    notes = [spider["description"].removesuffix(".")] if spider["description"] else []
    if spider["allowed_domains"]:
        notes.append(f"keeps to {', '.join(spider['allowed_domains'])}")
    if spider["own_start"]:
        notes.append("decides by itself where it starts")
    if not spider["needs_urls"]:
        notes.append("has start URLs of its own")
    return "; ".join(notes)


# --- `discoverybot projects delete`


@taking(
    PROJECTS.parameter("name"),
    argument("version", "[VERSION]", "Only this version. Without it, all of the project.", default=None),
    YES,
    JSON,
    URL,
)
def delete_project(*, name: str, version: str | None, yes: bool, as_json: bool, url: str | None) -> None:
    """Delete a project: all its versions, its variables and settings; its jobs stay, and crawls that run go on."""
    api, path = Api(gateway_url(url)), _path(name)
    versions = [one["version"] for one in api.get(path)["versions"]] if version is None else [version]
    if version is None and not yes:
        confirm(f"Delete the project {name} with {counted(len(versions), 'version')}, its variables and settings?")
    answers = [api.call("DELETE", f"{path}/{quote(one, safe='')}") for one in versions]
    if version is None:
        api.call("PUT", f"/projects/{quote(name, safe='')}/env", json={"variables": {}})
        api.call("PUT", f"/projects/{quote(name, safe='')}/settings", json={"settings": {}})
    if as_json:
        print_json(answers)
        return
    for answer in answers:
        print_node_answers(answer["nodes"])
        out.print(f"{name} {answer['version']}: deleted")
    if version is None:
        out.print(f"{name}: deleted")


# --- `discoverybot deploy`: put a Scrapy project, or an egg, on every crawl node

#: Maximum number of bytes that the gateway accepts.
_MAX_EGG = 64 << 20
#: Seconds between two checks of the progress.
_LOOK = 1

_SOURCE = "A Scrapy project (the folder of its scrapy.cfg), or an egg."


@taking(
    argument("source", "FOLDER|EGG", _SOURCE, kind=Path, default=Path()),
    option("project", "Its name. Default: as scrapy.cfg deploys it, else its package."),
    option(
        "settings", "The name of its settings in scrapy.cfg. Default: SCRAPY_PROJECT, else `default`.", metavar="NAME"
    ),
    option("version", "Its version. Default: scrapy.cfg's, else the time. GIT, HG: the state of the source."),
    option(
        "requirements",
        "Its requirements. Default: those that the project declares.",
        metavar="FILE",
        kind=Path,
        default=None,
    ),
    flag("without", "Run it with the nodes' own packages.", "--no-requirements"),
    option(
        "as_of",
        "With the versions at the end of that day. Default: the day of its stack, if it has one.",
        metavar="DATE",
    ),
    option(
        "build",
        "Only write its egg and requirements.txt there. Deploy nothing.",
        metavar="FOLDER",
        kind=Path,
        default=None,
    ),
    JSON,
    URL,
)
def deploy(
    *,
    source: Path,
    project: str | None,
    settings: str | None,
    version: str | None,
    requirements: Path | None,
    without: bool,
    as_of: str | None,
    build: Path | None,
    as_json: bool,
    url: str | None,
) -> None:
    """Deploy a Scrapy project to every crawl node; crawls that name no version get the one deployed last."""
    if build is not None and source.is_file():
        raise ApiError("--build: it makes an egg of a folder, and the source is one already")
    try:
        with TemporaryDirectory(prefix="discoverybot-egg-") as folder:
            day = _day(as_of)
            found = None if without else _requirements(source, requirements, day)
            name, version, egg, built = _egg(source, settings, version, Path(build or folder), found)
            needs = None if without else _completed(source, found, day, built)
            if needs is not None:
                _warn_of_old_scrapy(needs)
            if build is not None:
                _print_built(project or name, version, egg, build, needs, as_json=as_json)
                return
            answer = _deployed(api := Api(gateway_url(url)), project or name, version, egg, needs)
    except ApiError as error:
        raise _explained(error, as_json=as_json) from None
    _warn(api, answer["project"], version)
    if as_json:
        print_json(answer)
        return
    print_node_answers(answer["nodes"])
    out.print(f"{answer['project']} {version}: {counted(answer['spiders'], 'spider')}")


def _explained(error: ApiError, *, as_json: bool) -> ApiError:
    """The error to end with, after the nodes' reasons are printed if they differ."""
    nodes = error.detail.get("nodes", ()) if isinstance(error.detail, dict) else ()
    if as_json and nodes:
        print_json({"nodes": nodes})
    if as_json or len({node["message"] for node in nodes}) <= 1:
        return error
    print_node_answers(nodes)
    taken = sum(node["accepted"] for node in nodes)
    return ApiError(f"deployed on {taken} of {len(nodes)} nodes", error.exit_code)


def _print_built(
    project: str, version: str, egg: Path, folder: Path, needs: EggRequirements | None, *, as_json: bool
) -> None:
    """Print what `--build` has made, and write its requirements beside the egg."""
    requirements = None
    if needs is not None:
        requirements = folder / "requirements.txt"
        requirements.write_bytes(needs.content)
    if as_json:
        files = {"egg": str(egg), "requirements": requirements and str(requirements)}
        print_json({"project": project, "version": version, **files})
    else:
        out.print(f"{project} {version}: {egg}", soft_wrap=True)


def _warn(api: Api, project: str, version: str) -> None:
    """Print the nodes' warnings about the deployed version's dependencies, once if they agree."""
    found = _dependencies(api, _dependencies_url(project, version))
    for warning in dict.fromkeys(line for node in found for line in node.get("warnings", ())):
        _tell(warning)


def _egg(
    source: Path, settings: str | None, version: str | None, folder: Path, needs: EggRequirements | None
) -> tuple[str, str, Path, Built]:
    """The project's name, its version and its egg. If the source is a folder, the egg is built in `folder`."""
    try:
        if source.is_file():
            return project_of_egg(source), version_of(version, source.resolve().parent), source, Built()
        found = read_project(source.resolve(), settings or os.environ.get("SCRAPY_PROJECT") or "default")
        version = version_of(version or found.version, found.folder)
        folder.mkdir(parents=True, exist_ok=True)
        local = needs.local if needs else ()
        built = build_egg(found, version, egg := folder / "project.egg", _tell, local)
    except (EggBuildError, OSError) as error:
        raise ApiError(str(error)) from None
    return found.name, version, egg, built


def _requirements(source: Path, file: Path | None, as_of: str, built: Built | None = None) -> EggRequirements | None:
    """The declared requirements, or else those of the wheel that was `built`."""
    try:
        if file is not None:
            return read_requirements(file, source.resolve() if source.is_dir() else file.resolve().parent, as_of)
        if not source.is_dir():
            return None
        return find_requirements(source.resolve(), as_of, *(built[:2] if built else ()))
    except (EggBuildError, OSError) as error:
        raise ApiError(str(error)) from None


def _completed(source: Path, found: EggRequirements | None, as_of: str, built: Built) -> EggRequirements | None:
    """The requirements, completed with those of the wheels that were made for the egg."""
    if source.is_file():
        return found
    if found is None:
        found = _requirements(source, None, as_of, built)
    elif built.needs_of_local:
        lines = with_needs(found.content.decode().splitlines(), built.needs_of_local)
        found = found._replace(content="".join(f"{line}\n" for line in lines).encode())
    _tell(f"what it depends on: as in {found.name}" if found else _NONE_DECLARED)
    return found


#: The end of a requirement, where a comment or a hash begins.
_AFTER = re.compile(r"\s+(?:#|--hash)")


def _warn_of_old_scrapy(needs: EggRequirements) -> None:
    """Warn of a Scrapy that no node can run. The node says so only in its log, which nobody reads after a success."""
    for line in needs.content.decode("utf-8", "replace").splitlines():
        with suppress(InvalidRequirement):
            if is_too_old(wanted := Requirement(_AFTER.split(line)[0])):
                _tell(raised_words(wanted))
                return


_NONE_DECLARED = (
    "no requirements found (no lock, requirements.txt, pyproject.toml, Pipfile or setup.py): it runs with the nodes' "
    "packages"
)


def _day(text: str | None) -> str:
    """The date in ISO form; empty for none. Raises `ApiError` for a text that is not a date."""
    try:
        day, raised = date.fromisoformat(text).isoformat() if text else "", raised_day(text or "")
    except ValueError:
        raise ApiError(f"--as-of: {text!r} is no date like 2024-10-22") from None
    if raised != day:
        _tell(f"there was no Scrapy on {day} that a node can run: as of {raised}, the day of Scrapy {OLDEST_SCRAPY}")
    return raised


def _tell(line: str) -> None:
    err.print(line, soft_wrap=True, markup=False, highlight=False)


def _deployed(api: Api, project: str, version: str, egg: Path, requirements: EggRequirements | None) -> Any:
    """The answer to the deployment, after all nodes have installed the requirements."""
    if (size := egg.stat().st_size) > _MAX_EGG:
        raise ApiError(f"the egg has {size >> 20} MiB; {_MAX_EGG >> 20} are allowed")
    needs = requirements and requirements.content.decode("utf-8", "surrogateescape")
    with _progress(api, _dependencies_url(project, version)), api.telling():
        return api.client.deploy(egg, project=project, version=version, requirements=needs).raw


@contextmanager
def _progress(api: Api, url: str) -> Iterator[None]:
    """While the block runs, print from a thread how far the installing nodes are, each line once."""
    done = Event()
    listener = Thread(target=_listen, args=(api, url, done), daemon=True)
    listener.start()
    try:
        yield
    finally:
        done.set()
        listener.join(_LOOK)


def _listen(api: Api, url: str, done: Event) -> None:
    told = dict[str, str]()
    while not done.wait(_LOOK):
        for node in _dependencies(api, url):
            line = next(reversed(node["log"].splitlines()), "waits for its turn")
            if node["state"] == "building" and told.get(node["node"]) != line:
                err.print(f"{node['node']}: {line}", soft_wrap=True)
                told[node["node"]] = line


def _dependencies(api: Api, url: str) -> list[dict[str, Any]]:
    """The nodes that install; empty if it is unknown, for example because a restarted node has forgotten it."""
    try:
        nodes: list[dict[str, Any]] = api.get(url)["nodes"]
    except ApiError:
        return []
    return nodes


def _dependencies_url(project: str, version: str) -> str:
    return f"{_path(project)}/{quote(version, safe='')}/dependencies"


def _path(project: str) -> str:
    return f"/projects/{quote(project, safe='')}/versions"
