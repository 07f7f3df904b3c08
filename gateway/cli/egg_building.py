"""A Scrapy project as an egg: a ZIP file of its packages, with a note of where its settings are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator
from configparser import ConfigParser
from configparser import Error as ParsingError
from contextlib import suppress
from email.parser import HeaderParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from uv import find_uv_bin

from gateway.cli.requirements import EggBuildError, above
from gateway.contract.requirements import CHANGED, ELSEWHERE

_ENTRY_POINTS = "EGG-INFO/entry_points.txt"


class ScrapyProject(NamedTuple):
    folder: Path
    #: Dotted name of its settings module.
    settings: str
    #: The project's name in scrapy.cfg's deploy target, or else the package of its settings.
    name: str
    #: The version in scrapy.cfg, which may be `GIT` or `HG`; `None` if it has none.
    version: str | None = None

    @property
    def package(self) -> str:
        return self.settings.partition(".")[0]


def read_project(folder: Path, chosen: str = "default") -> ScrapyProject:
    """The project, with the settings that scrapy.cfg has under this name. Raises `EggBuildError` if
    there are none.
    """
    path = folder / "scrapy.cfg"
    config = ConfigParser(strict=False)  # which puts in `%(name)s`, as Scrapy's does
    try:
        if not config.read(path, encoding="utf-8"):
            raise EggBuildError(_no_project(folder))
        settings = config.get("settings", chosen, fallback="")
    except (ParsingError, UnicodeDecodeError) as error:
        raise EggBuildError(f"{path} cannot be read: {error}") from None
    if not settings:
        raise EggBuildError(_no_choice(path, config, chosen))
    name = _of_target(config, "project") or settings.partition(".")[0]
    return ScrapyProject(folder, settings, name, _of_target(config, "version"))


def project_of_folder(folder: Path) -> str | None:
    """The name of the project that contains the folder, found as `scrapy` finds it; `None` if there is none."""
    found = next((one for one in (folder, *folder.parents) if (one / "scrapy.cfg").is_file()), None)
    if found is None:
        return None
    try:
        return read_project(found, os.environ.get("SCRAPY_PROJECT") or "default").name
    except (EggBuildError, OSError):
        return None


def _no_choice(path: Path, config: ConfigParser, chosen: str) -> str:
    names = config.options("settings") if config.has_section("settings") else []
    if names:
        return f"{path} has no settings {chosen!r}: name one that it has (--settings {' or '.join(names)})"
    return f"{path} does not say where the settings are: [settings] {chosen} = <package>.settings"


def _no_project(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder}: there is no such folder, and no such egg"
    # not at any depth: the folder may be a home folder
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


def _of_target(config: ConfigParser, option: str) -> str | None:
    """The option of the first of scrapy.cfg's targets that has it: `[deploy]`, `[deploy:live]`."""
    targets = (name for name in config.sections() if name == "deploy" or name.startswith("deploy:"))
    # without what `%` may mean: a password can have one
    values = (config.get(target, option, raw=True, fallback="").strip() for target in targets)
    return next((value for value in values if value), None)


def project_of_egg(path: Path) -> str:
    """The package that has the settings. Raises `EggBuildError` if the file is not an egg of a Scrapy project."""
    config = ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    try:
        with zipfile.ZipFile(path) as egg:
            config.read_string(egg.read(_ENTRY_POINTS).decode("utf-8", "replace"))
    except (zipfile.BadZipFile, OSError):
        raise EggBuildError(f"{path} is not an egg: it is not a ZIP file") from None
    except (KeyError, ParsingError):
        pass
    settings = config.get("scrapy", "settings", fallback="").strip()
    if not settings:
        raise EggBuildError(f"{path} is not an egg of a Scrapy project: it does not say where its settings are")
    return settings.partition(".")[0]


# --- the egg's files: those that the project's own build backend makes, and all that git has beside scrapy.cfg

#: Never deployed if they are at the top of a project. The project's requirements are sent separately.
_LEFT_OUT = frozenset({"tests", "test", "build", "dist", "docs", "setup.py", "conftest.py", "requirements.txt"})
#: Folder whose packages are imported without its name.
_SRC = "src"
_NEVER = frozenset({"__pycache__", "node_modules"})


class Built(NamedTuple):
    """What is known about an egg that was built."""

    #: From the wheel of the project's own build backend: its requirements, and a range of Pythons.
    needs: tuple[str, ...] = ()
    pythons: str = ""
    #: Requirements of the wheels that were made of `local` folders.
    needs_of_local: tuple[str, ...] = ()


def build_egg(
    project: ScrapyProject, version: str, target: Path, tell: Callable[[str], None], local: Iterable[Path] = ()
) -> Built:
    """Write the egg to `target`, with the folders and wheels of this machine that the project requires (`local`).
    `tell` gets a line about everything that the user might not expect. Raises `EggBuildError`, `OSError`.
    """
    tracked = _tracked(project.folder)
    own = dict(_members(project, tracked, tell))
    if tracked is None:
        own |= _data(project, tell)
    with TemporaryDirectory(prefix="discoverybot-build-") as folder:
        work = Path(folder)
        files = [*(tracked or ()), *own.values(), *_at_top(project.folder)]
        wheel = _build(project.folder, files, work, tell) if _has_backend(project.folder) else None
        made = _contents(wheel, work / "wheel", project.package) if wheel else {}
        members = {**own, **made}
        project = _with_settings(project, members, tell)
        needs = list[str]()
        for number, place in enumerate(local):
            theirs, said = _of_local(place, work / f"local-{number}", tell)
            members, needs = {**theirs, **members}, [*needs, *said.needs]
        members = _with_imported(project.folder, members, tell)
        _write(project, version, target, members, _elsewhere(project.folder, members))
        built = _metadata(work / "wheel") if wheel else Built()
        return built._replace(needs_of_local=tuple(needs))


#: Endings of the path of a module's file.
_MODULE = (".py", "/__init__.py")


def _with_settings(project: ScrapyProject, members: dict[str, Path], tell: Callable[[str], None]) -> ScrapyProject:
    """The project with the settings that are in its egg. A name that begins with folders above scrapy.cfg (because
    the project is started from there) is taken without them. Raises `EggBuildError`.
    """
    parts = project.settings.split(".")
    names = [".".join(parts[above:]) for above in range(max(1, len(parts) - 1))]  # at least with the package
    for name in names:
        if any(f"{name.replace('.', '/')}{end}" in members for end in _MODULE):
            if name != project.settings:
                tell(f"the settings are {name}: scrapy.cfg calls them {project.settings}, which is not beside it")
            return project._replace(settings=name)
    raise EggBuildError(_no_settings(project, members))


def _no_settings(project: ScrapyProject, members: dict[str, Path]) -> str:
    others = sorted(name[:-3].replace("/", ".") for name in members if name.endswith("settings.py"))
    there = f"; {others[0]} is there" if others else ""
    path = project.folder / "scrapy.cfg"
    return f"{path} says that the settings are {project.settings}, but there is no such module{there}"


#: `import a.b` and `from a.b import c`.
_IMPORT = re.compile(rb"^[ \t]*(?:import|from)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)


def _with_imported(folder: Path, members: dict[str, Path], tell: Callable[[str], None]) -> dict[str, Path]:
    """The files of the egg, and the modules that it imports from elsewhere in the repository. If a module of the same
    name is installed on the node, that one takes precedence.
    """
    if not any((one / ".git").exists() for one in (folder, *folder.parents)):
        return members
    while True:
        modules = [path for name, path in members.items() if name.endswith(".py")]
        names = {name.decode() for path in modules for name in _IMPORT.findall(path.read_bytes())}
        found = _elsewhere(folder, members)
        places = {name: found[name] for name in sorted(names & found.keys() - sys.stdlib_module_names)}
        more = {name: path for place in places.values() for name, path in _files_of(folder / place)}
        if not more:
            return members
        tell(f"in the egg, too, because it is imported: {', '.join(places.values())}")
        members = {**more, **members}


def _files_of(module: Path) -> Iterator[tuple[str, Path]]:
    """The files of a package or a module, with their places in an egg."""
    if not module.is_dir():
        yield module.name, module
        return
    files = _tracked(module) or sorted(path for path in module.rglob("*") if path.is_file())
    for path in files:
        if _is_source(path, module):
            yield path.relative_to(module.parent).as_posix(), path


def _elsewhere(folder: Path, members: dict[str, Path]) -> dict[str, str]:
    """Modules of the repository that are not in the egg, by name, with their places. No index has them."""
    there = {name.partition("/")[0].removesuffix(".py") for name in members}
    found = dict[str, str]()
    for place in (folder, *above(folder)):
        for path in sorted(place.iterdir()):
            is_package = path.is_dir() and any(path.glob("*.py"))
            if (is_package or path.suffix == ".py") and path.stem not in there and path != folder:
                found.setdefault(path.stem, os.path.relpath(path, folder))
    return found


def _write(
    project: ScrapyProject, version: str, target: Path, members: dict[str, Path], elsewhere: dict[str, str]
) -> None:
    notes = {
        "EGG-INFO/PKG-INFO": f"Metadata-Version: 1.1\nName: {project.name}\nVersion: {version}\n",
        _ENTRY_POINTS: f"[scrapy]\nsettings = {project.settings}\n",
        ELSEWHERE: "".join(f"{name} {place}\n" for name, place in sorted(elsewhere.items())),
        **_changed(project.folder),
    }
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as egg:
        for name, path in members.items():
            egg.write(path, name)
        for name, text in notes.items():
            egg.writestr(
                zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED
            )  # without a time, so the same egg has the same bytes


#: Changes of these files may decide whether the project works with other versions of its dependencies.
_DECISIVE = ("*.py", "*requirements*.txt", "*pyproject.toml", "*.lock", "*Pipfile", "*setup.cfg", "*scrapinghub.yml")


def _changed(folder: Path) -> dict[str, str]:
    """A file that notes the day of the last commit to the files in `_DECISIVE`. Empty if the folder is in no
    repository, or was changed since.
    """
    try:
        if _answer(folder, "git", "status", "--porcelain", "--untracked-files=no", "--", *_DECISIVE):
            return {}
        day = _answer(folder, "git", "log", "-1", "--format=%cs", "--", *_DECISIVE)
    except EggBuildError:
        return {}
    return {CHANGED: f"{day}\n"} if day else {}


def _members(
    project: ScrapyProject, tracked: list[Path] | None, tell: Callable[[str], None]
) -> Iterator[tuple[str, Path]]:
    """Each file's place in the egg, and where it lies: modules and packages beside scrapy.cfg, and what git has."""
    folder, left = project.folder, list[str]()
    has_src = (folder / _SRC / project.package).is_dir() and not (folder / project.package).exists()
    for path in sorted(folder.iterdir()):
        if not _may_be_in(path.name, project.package):
            continue
        if path.is_dir() and (path.name == project.package or (path / "__init__.py").is_file()):
            files = sorted(inner for inner in path.rglob("*") if inner.is_file() and _is_source(inner, path))
            yield from ((file.relative_to(folder).as_posix(), file) for file in files)
        elif path.is_dir() and path.name == _SRC and has_src:
            files = sorted(inner for inner in path.rglob("*") if inner.is_file() and _is_source(inner, path))
            yield from ((file.relative_to(path).as_posix(), file) for file in files)
        elif path.suffix == ".py":
            yield path.name, path
        elif path.is_dir() and tracked is None and any(path.iterdir()) and not (path / "pyvenv.cfg").exists():
            left.append(f"{path.name}/")
    for path in tracked or ():
        place = path.relative_to(folder)
        is_done = has_src and place.parts[0] == _SRC
        if _may_be_in(place.parts[0], project.package) and _is_source(path, folder) and not is_done:
            yield place.as_posix(), path
    if left:
        tell(f"not in the egg: {', '.join(left)} (no packages; `git init` and `git add` what is to be in it)")


#: Endings of the data that is in the egg of a project in no repository, if it is beside scrapy.cfg.
_DATA = frozenset({".csv", ".html", ".json", ".jsonl", ".sql", ".tsv", ".txt", ".xml", ".yaml", ".yml"})
#: Most of such files, and of their bytes together: more than that is rather what the project has scraped.
_MOST_DATA, _MOST_DATA_BYTES = 100, 16 << 20


def _data(project: ScrapyProject, tell: Callable[[str], None]) -> Iterator[tuple[str, Path]]:
    """Data beside scrapy.cfg, which no repository says to be a part of the project."""
    files = [path for path in sorted(project.folder.iterdir()) if path.suffix.lower() in _DATA]
    found = [
        path for path in files if _may_be_in(path.name, project.package) and path.is_file() and not path.is_symlink()
    ]
    if not found:
        return
    size = sum(path.stat().st_size for path in found)
    if len(found) > _MOST_DATA or size > _MOST_DATA_BYTES:
        what = f"{len(found)} files of data, {size >> 20} MiB"
        tell(f"not in the egg: {what} (`git init` and `git add` what is to be in it)")
        return
    tell(f"in the egg, too, because it is data beside scrapy.cfg: {', '.join(path.name for path in found)}")
    yield from ((path.name, path) for path in found)


def _may_be_in(top: str, package: str) -> bool:
    return not top.startswith(".") and (top not in _LEFT_OUT or Path(top).stem == package)


def _is_source(path: Path, package: Path) -> bool:
    parts = path.relative_to(package).parts
    return path.suffix != ".pyc" and not any(part.startswith(".") or part in _NEVER for part in parts)


def _tracked(folder: Path) -> list[Path] | None:
    """The files that git has there, and new ones that it would not ignore; `None` for a folder in no repository."""
    try:
        top = Path(_answer(folder, "git", "rev-parse", "--show-toplevel"))
        names = _answer(folder, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    except EggBuildError:
        return None
    # a link may lead to another place in the repository, but not out of it
    paths = [folder / name for name in sorted(filter(None, names))]
    return [path for path in _followed(paths) if path.resolve().is_relative_to(top.resolve())]


def _followed(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_file():
            yield path
        elif path.is_symlink() and path.is_dir():
            yield from sorted(inner for inner in path.rglob("*") if inner.is_file())


# --- the project's own build backend, run in a copy because it may leave files of its own

#: Maximum number of seconds for a project's build backend.
_LONGEST = 180
_SAID = re.compile(r"[╰─▶├│×]+|\x1b\[[0-9;]*m")
_MOST_SAID = 300


def _has_backend(folder: Path) -> bool:
    if (folder / "setup.py").is_file():
        return True
    with suppress(OSError, ValueError):
        return "build-system" in tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    return False


def _at_top(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]


def _build(folder: Path, files: Iterable[Path], work: Path, tell: Callable[[str], None]) -> Path | None:
    """The wheel; `None` if none can be made. The user then gets a message, and the egg has the project's
    own files.
    """
    for path in dict.fromkeys(files):
        copy = work / "source" / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    command = [find_uv_bin(), "build", "--wheel", "--no-python-downloads", "--color", "never"]
    # its version does not matter, and there is no repository in the copy
    env = {**os.environ, "SETUPTOOLS_SCM_PRETEND_VERSION": "0"}
    try:
        done = subprocess.run(  # noqa: S603 - our command
            [*command, "--out-dir", str(work / "made"), str(work / "source")],
            capture_output=True, text=True, errors="replace", env=env, timeout=_LONGEST, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        tell(f"its build backend made no wheel within {_LONGEST} s: the egg has the files as they are")
        return None
    if wheel := next((work / "made").glob("*.whl"), None):
        return wheel
    backends, _, uvs = done.stderr.partition("error:")
    last = [line for line in backends.splitlines() if line.strip() and not line.startswith("Building")][-1:]
    said = " ".join(_SAID.sub(" ", "".join(last) or uvs).split())[:_MOST_SAID]
    tell(f"its build backend made no wheel, so the egg has the files as they are: {said}")
    return None


def _of_local(place: Path, work: Path, tell: Callable[[str], None]) -> tuple[dict[str, Path], Built]:
    """The modules of a folder or wheel that the requirements name, and its own requirements."""
    tell(f"in the egg, too, because it is required: {place}")
    wheel: Path | None = place
    if place.is_dir():
        files = _tracked(place) or sorted(path for path in place.rglob("*") if path.is_file())
        wheel = _build(place, [*files, *_at_top(place)], work, tell) if _has_backend(place) else None
    if wheel is not None:
        return _contents(wheel, work / "wheel", ""), _metadata(work / "wheel")
    modules = [path for path in place.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    return dict(one for path in modules if path.name not in _LEFT_OUT for one in _files_of(path)), Built()


def _contents(wheel: Path, folder: Path, package: str) -> dict[str, Path]:
    """The modules and data of a wheel, unpacked, by their places."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    files = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        place.as_posix(): path
        for place, path in files.items()
        if _may_be_in(place.parts[0], package) and not place.parts[0].endswith((".dist-info", ".data"))
    }


def _metadata(folder: Path) -> Built:
    path = next(folder.glob("*.dist-info/METADATA"), None)
    if path is None:
        return Built()
    said = HeaderParser().parsestr(path.read_text("utf-8", "replace"))
    # requirements on files of this machine are left out: the project declares them itself as well
    needs = [line for line in said.get_all("Requires-Dist", []) if "extra ==" not in line and "file:" not in line]
    return Built(tuple(needs), said.get("Requires-Python", ""))


# --- the version, which may be the source's: `GIT` and `HG` have the same meaning as for `scrapyd-deploy`

#: Characters that a version must not have; a node would replace them in the same way.
_NOT_IN_A_VERSION = re.compile(r"[^A-Za-z0-9_.+-]")


def version_of(text: str | None, folder: Path) -> str:
    """`text`; the state of the source for `GIT` and `HG`; the time in seconds without a text. Raises
    `EggBuildError`.
    """
    match text:
        case None:
            return str(int(time.time()))
        case "GIT":
            branch = _answer(folder, "git", "rev-parse", "--abbrev-ref", "HEAD")
            try:
                commit = _answer(folder, "git", "describe")
            except EggBuildError:  # there is no tag
                commit = f"r{_answer(folder, 'git', 'rev-list', '--count', 'HEAD')}"
        case "HG":
            branch = _answer(folder, "hg", "branch")
            commit = f"r{_answer(folder, 'hg', 'tip', '--template', '{rev}')}"
        case _:
            return text
    return _NOT_IN_A_VERSION.sub("_", f"{commit}-{branch}")


def _answer(folder: Path, *command: str) -> str:
    """The output of the command. Raises `EggBuildError`."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603 - our command
    except OSError as error:
        raise EggBuildError(f"version: {command[0]} cannot be run: {error.strerror}") from None
    except subprocess.CalledProcessError as error:
        raise EggBuildError(f"version: {' '.join(command)}: {error.stderr.strip()}") from None
    return done.stdout.strip()
