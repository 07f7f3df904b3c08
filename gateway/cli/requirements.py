"""The requirements of a Scrapy project as a file, from the first place in which it declares some."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from configparser import ConfigParser
from configparser import Error as ParsingError
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from uv import find_uv_bin

from gateway.contract.requirements import Conditions


class EggBuildError(Exception):
    """The folder is no Scrapy project, or the file no egg; the message says what is missing."""


#: Maximum number of seconds in which uv reads a lock.
_EXPORT = 60
_SCRAPINGHUB, _PYPROJECT, _PIPFILE = "scrapinghub.yml", "pyproject.toml", "Pipfile"


class EggRequirements(NamedTuple):
    #: The file that declares them.
    name: str
    content: bytes
    #: Folders and wheels of this machine that they name. No node has them, so they must be put into the egg.
    local: tuple[Path, ...] = ()


class _Declared(NamedTuple):
    """What was found in one place."""

    name: str
    #: Each is a requirement, or a path on this machine.
    lines: list[str | Path]
    #: A range of versions, and the version that the project is developed with.
    pythons: str = ""
    python: str = ""
    #: Whether all versions are exact, so that those of a stack do not apply.
    is_lock: bool = False


def find_requirements(
    folder: Path, as_of: str = "", needs: Iterable[str] = (), pythons: str = ""
) -> EggRequirements | None:
    """The first requirements that are declared: those that scrapinghub.yml names, uv.lock, poetry.lock or
    Pipfile.lock, requirements.txt, pyproject.toml, setup.cfg, Pipfile, setup.py. These are looked for beside
    scrapy.cfg, and then above it up to the repository's folder. If there are none, they are what the project's wheel
    `needs`, with its `pythons`. `None` for a project that declares nothing. With `as_of`, versions are those at the
    end of that day.

    Raises `EggBuildError`, `OSError`.
    """
    folders = [folder, *above(folder)]
    # one after the other: a folder further up is not read if a nearer one has some
    found = next((one._replace(name=_shown(place, folder, one.name)) for place, one in _declared(folders)), None)
    if found is None and (lines := [*needs]):
        found = _Declared("its build backend", [*lines], pythons)
    conditions = _conditions(folders, found, as_of)
    if found is None and conditions._replace(python="") == Conditions():
        return None
    return _requirements(found or _Declared("no file", []), conditions, folder)


def read_requirements(path: Path, folder: Path, as_of: str = "") -> EggRequirements:
    """The requirements in one file, for the project in `folder`. Raises `EggBuildError`, `OSError`."""
    found = _Declared(path.name, [*_lines(path)])
    return _requirements(found, _conditions([folder, *above(folder)], found, as_of), folder)


def above(folder: Path) -> list[Path]:
    """The folders above `folder`, up to its repository's. Without a repository, only the next one."""
    parents = [*folder.parents]
    if (folder / ".git").exists():
        return []
    top = next((number for number, one in enumerate(parents) if (one / ".git").exists()), 0)
    return parents[: top + 1]


def _declared(folders: list[Path]) -> Iterator[tuple[Path, _Declared]]:
    for folder in folders:
        for read in (_of_scrapinghub, _of_uv, _of_poetry, _of_pipenv, _of_file, *_UNLOCKED):
            if (found := read(folder)) is not None:
                yield folder, found
    named = _named_for_scrapinghub(folders[0])
    if named is not None:  # Scrapy Cloud's own tool may make the file only when it deploys
        raise EggBuildError(
            f"{folders[0] / _SCRAPINGHUB} says that the requirements are in {named}, which is not there: make it, or "
            "deploy with --requirements FILE or --no-requirements"
        )


def _shown(place: Path, folder: Path, name: str) -> str:
    return "../" * len(folder.relative_to(place).parts) + name


def _requirements(found: _Declared, conditions: Conditions, folder: Path) -> EggRequirements:
    lines, local = [line for line in found.lines if isinstance(line, str)], list[Path]()
    waiting = [line for line in found.lines if isinstance(line, Path)]
    while waiting:
        path = waiting.pop(0).resolve()
        if path not in local:
            local.append(path)
            needs = [] if found.is_lock else _needs_of(path)  # a lock has them already
            waiting += [line for line in needs if isinstance(line, Path)]
            lines = with_needs(lines, [line for line in needs if isinstance(line, str)])
    text = "".join(f"{line}\n" for line in [*conditions.comments, *lines])
    return EggRequirements(found.name, text.encode(), tuple(path for path in local if path != folder.resolve()))


def _needs_of(folder: Path) -> list[str | Path]:
    found = (read(folder) for read in _UNLOCKED)
    return next((one.lines for one in found if one is not None), [])


def with_needs(lines: Iterable[str], needs: Iterable[str]) -> list[str]:
    """`lines`, and those of `needs` whose names are not among them."""
    kept = [*lines]
    named = {_name(line) for line in kept}
    return [*kept, *(line for line in needs if _name(line) not in named)]


def _name(line: str) -> str:
    """The name of the package that the line asks for; the line itself if it asks for none."""
    found = re.match(r"[A-Za-z0-9][\w.-]*", line)
    return canonicalize_name(found[0]) if found else line


def _conditions(folders: list[Path], found: _Declared | None, as_of: str) -> Conditions:
    pythons = found.pythons if found else ""
    if not pythons:
        said = (_pythons_of(place) for place in folders)
        pythons = next((one for one in said if one), "")
    python = found.python if found else ""
    stack = "" if as_of or (found and found.is_lock) else _stack(folders[0])
    return Conditions(_range(pythons), python or _developed_with(folders), as_of, stack)


def _range(text: str) -> str:
    """The range in the form of PEP 440; empty if it is not valid."""
    with suppress(InvalidSpecifier):
        return str(SpecifierSet(text))
    return ""


def _pythons_of(folder: Path) -> str:
    if (folder / _PYPROJECT).is_file():
        pyproject = _read(folder / _PYPROJECT, tomllib.loads)
        if wanted := pyproject.get("project", {}).get("requires-python"):
            return str(wanted)
        return _poetry_range(_poetrys(pyproject).get("python", ""))
    return _option(folder, "python_requires")


def _developed_with(folders: Iterable[Path]) -> str:
    """The Python version in the file that pyenv and uv read."""
    for folder in folders:
        with suppress(OSError, UnicodeDecodeError):
            lines = (folder / ".python-version").read_text("utf-8").split("\n")
            return next((line.strip() for line in lines if line.strip() and not line.startswith("#")), "")
    return ""


# --- scrapinghub.yml


def _said_to_scrapinghub(folder: Path) -> dict[str, Any]:
    path = folder / _SCRAPINGHUB
    if not path.is_file():
        return {}
    try:
        said = yaml.safe_load(path.read_bytes())
    except yaml.YAMLError as error:
        raise EggBuildError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    return said if isinstance(said, dict) else {}


def _named_for_scrapinghub(folder: Path) -> str | None:
    said = _said_to_scrapinghub(folder)
    requirements = said.get("requirements")
    name = requirements.get("file") if isinstance(requirements, dict) else said.get("requirements_file")
    return str(name) if name else None


def _of_scrapinghub(folder: Path) -> _Declared | None:
    named = _named_for_scrapinghub(folder)
    if named is None or not (path := folder / named).is_file():
        return None
    if path.name == _PIPFILE:
        return _of_pipfile(path.parent)
    return _Declared(named, [*_lines(path)])


def _stack(folder: Path) -> str:
    """The stack of the project itself, of its default project, or of the first project that has one."""
    said = _said_to_scrapinghub(folder)
    places: list[Any] = [said.get("stack")]
    for one in (said.get("stacks"), said.get("projects")):
        if isinstance(one, dict):
            places += [one.get("default"), *one.values()]
    names = (place.get("stack") if isinstance(place, dict) else place for place in places)
    return next((name for name in names if isinstance(name, str) and name.startswith("scrapy:")), "")


# --- requirements.txt, and the files that it names

#: Maximum number of levels of files that name other files.
_DEEPEST = 10
_FILE = re.compile(r"(?:-r|--requirement)[= ]*(?P<name>[^#]+?)\s*(?:#.*)?")
#: `-e ./lib`, `../lib[extra]`, `lib @ file:./lib`, `lib-1.0-py3-none-any.whl`; and what `pip freeze` says of packages
#: that conda has built: `lib @ file:///croot/lib`.
_LOCAL = re.compile(
    r"(?P<editable>(?:-e|--editable)[= ]*)?(?:(?P<name>[\w.-]+)(?:\[[^]]*\])? *@ *)?(?P<scheme>file:(?://)?)?"
    r"(?P<place>[^\s#;:@\[]+)(?:\[[^]]*\])?(?:#egg=\S+)?\s*(?:[;#].*|--hash.*)?"
)
#: A URL that contains the name of its package: `-e git+https://…#egg=lib`, `https://…/lib-1.0-py3-none-any.whl`.
_GIT = re.compile(r"(?:(?:-e|--editable)[= ]*)?(?P<url>git\+[^\s#]+)#(?:\S+&)?egg=(?P<name>[\w.-]+)\S*")
_WHEEL = re.compile(r"(?P<url>https?://[^\s#]+/(?P<name>[\w.]+)-[^\s#/]+\.whl)(?:#\S*)?")


def _of_file(folder: Path) -> _Declared | None:
    path = folder / "requirements.txt"
    return _Declared(path.name, [*_lines(path)]) if path.is_file() else None


def _lines(path: Path, depth: int = 0) -> Iterator[str | Path]:
    """The lines of the file and of the files that it names. Raises `EggBuildError`."""
    if depth > _DEEPEST:
        raise EggBuildError(f"{path} is named by a file that it names")
    for line in _decoded(path).splitlines():
        text = line.strip()
        if other := _FILE.fullmatch(text):
            yield from _lines(path.parent / other["name"].strip("\"'"), depth + 1)
        elif named := _GIT.fullmatch(text) or _WHEEL.fullmatch(text):
            yield f"{named['name']} @ {named['url']}"
        else:
            yield _placed(line, path.parent)


def _placed(line: str, folder: Path) -> str | Path:
    """The path that the line names, if that is on this machine; otherwise a line for the index."""
    found = _LOCAL.fullmatch(line.strip())
    if found is None:
        return line
    place = found["place"]
    if not (found["editable"] or found["scheme"] or "/" in place or place == "." or place.endswith(".whl")):
        return line
    path = folder / place
    if _is_here(path):
        return path
    # a path of another machine only says where the package was built, so an index may have it, too
    return found["name"] if found["name"] and found["scheme"] and place.startswith("/") else line


def _is_here(path: Path) -> bool:
    return path.is_dir() or (path.suffix == ".whl" and path.is_file())


def _decoded(path: Path) -> str:
    """The text of the file. It may be UTF-16, because PowerShell writes that."""
    content = path.read_bytes()
    try:
        return content.decode("utf-16" if content[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig")
    except UnicodeDecodeError:
        raise EggBuildError(f"{path} is not UTF-8 text") from None


# --- locks, which have exact versions and hashes


def _read(path: Path, parse: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    try:
        return parse(path.read_text("utf-8"))
    except ValueError as error:
        raise EggBuildError(f"{path} cannot be read: {error}") from None


def _of_uv(folder: Path) -> _Declared | None:
    if not (folder / "uv.lock").is_file() or not (folder / _PYPROJECT).is_file():
        return None
    # the exported lines do not say for which Python they were locked
    python = _read(folder / "uv.lock", tomllib.loads).get("requires-python", "")
    lines = [_placed(line, folder) for line in _exported(folder).splitlines()]
    return _Declared("uv.lock", lines, python, is_lock=True)


def _exported(folder: Path) -> str:
    """The requirements in the lock, without the project itself and without development dependencies."""
    kept = ["--frozen", "--no-dev", "--no-emit-workspace", "--no-annotate", "--no-header", "--quiet"]
    command = [find_uv_bin(), "export", "--offline", "--no-python-downloads", *kept, "--project", str(folder)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=_EXPORT)  # noqa: S603 - our command
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.decode("utf-8", "replace").split())
        raise EggBuildError(f"{folder / 'uv.lock'} cannot be read: {said}") from None
    except subprocess.TimeoutExpired:
        raise EggBuildError(f"{folder / 'uv.lock'} could not be read within {_EXPORT} s") from None
    return done.stdout.decode()


def _of_poetry(folder: Path) -> _Declared | None:
    if not (folder / "poetry.lock").is_file():
        return None
    lock = _read(folder / "poetry.lock", tomllib.loads)
    pythons = _poetry_range(lock.get("metadata", {}).get("python-versions", ""))
    if all("groups" in package for package in lock.get("package", ())):
        return _Declared("poetry.lock", [*_of_poetry_2(lock, folder)], pythons, is_lock=True)
    if (folder / "requirements.txt").is_file():  # made from the lock, or newer
        return None
    if not (folder / _PYPROJECT).is_file():
        raise EggBuildError(
            "poetry.lock is of Poetry 1, which needs its pyproject.toml beside it to tell what is needed"
        )
    wanted = _poetrys(_read(folder / _PYPROJECT, tomllib.loads))
    return _Declared("poetry.lock", [*_of_poetry_1(lock, wanted, folder)], pythons, is_lock=True)


def _of_poetry_2(lock: dict[str, Any], folder: Path) -> Iterator[str | Path]:
    for package in lock.get("package", ()):
        if "main" in package["groups"] and not package.get("optional"):
            markers = package.get("markers")
            marker = markers.get("main") if isinstance(markers, dict) else markers
            yield _locked(lock, package, folder, marker)


def _of_poetry_1(lock: dict[str, Any], wanted: dict[str, Any], folder: Path) -> Iterator[str | Path]:
    """The requirements in a lock of Poetry 1. It does not mark development packages: these are the ones that the
    project's dependencies do not reach.
    """
    packages: dict[str, Any] = {canonicalize_name(one["name"]): one for one in lock.get("package", ())}
    markers: dict[str, set[str]] = {}
    reached = set[tuple[str, str, str]]()
    waiting = [*_edges(wanted, {})]
    while waiting:
        name, of, extras = edge = waiting.pop()
        if name not in packages or edge in reached:
            continue
        reached.add(edge)
        markers.setdefault(name, set()).add(of)
        package = packages[name]
        chosen = {extra: package.get("extras", {}).get(extra, ()) for extra in filter(None, extras.split(","))}
        waiting += _edges(package.get("dependencies", {}), chosen)
    for name, found in sorted(markers.items()):
        marker = None if "" in found else " or ".join(f"({one})" for one in sorted(found))
        yield _locked(lock, packages[name], folder, marker)


def _edges(dependencies: dict[str, Any], extras: dict[str, Iterable[str]]) -> Iterator[tuple[str, str, str]]:
    """Name, marker and extras of each dependency. An optional one counts only if one of these extras needs it."""
    of_extras = {canonicalize_name(re.split(r"[^\w.-]", text)[0]) for one in extras.values() for text in one}
    for name, said in dependencies.items():
        for one in said if isinstance(said, list) else [said]:
            table = one if isinstance(one, dict) else {}
            if not table.get("optional") or canonicalize_name(name) in of_extras:
                marker = re.sub(r"(?: and )?extra == ['\"][\w.-]+['\"]", "", table.get("markers", "")).strip()
                yield canonicalize_name(name), marker, ",".join(table.get("extras", ()))


def _locked(lock: dict[str, Any], package: dict[str, Any], folder: Path, marker: str | None) -> str | Path:
    files = package.get("files") or lock.get("metadata", {}).get("files", {}).get(package["name"], ())
    place = _place(package, folder)
    return _line("poetry.lock", package["name"], place, [file["hash"] for file in files], marker)


def _place(package: dict[str, Any], folder: Path) -> str | Path | None:
    """Where the package comes from; `None` for a source that no node can use."""
    source = package.get("source", {})
    match source.get("type", "legacy"):
        case "legacy":
            return f"=={package['version']}"
        case "git":
            return f" @ git+{source['url']}@{source['resolved_reference']}"
        case "url":
            return f" @ {source['url']}"
        case "directory" | "file":
            return folder / str(source["url"])
    return None


def _of_pipenv(folder: Path) -> _Declared | None:
    if not (folder / "Pipfile.lock").is_file():
        return None
    lock = _read(folder / "Pipfile.lock", json.loads)
    # Pipenv itself only warns of another Python
    python = lock.get("_meta", {}).get("requires", {}).get("python_version", "")
    return _Declared("Pipfile.lock", [*_packages_of_pipenv(lock, folder)], python=python, is_lock=True)


def _packages_of_pipenv(lock: dict[str, Any], folder: Path) -> Iterator[str | Path]:
    for name, package in lock.get("default", {}).items():
        place: str | Path | None = (
            f" @ git+{package['git']}@{package['ref']}" if "git" in package else package.get("version")
        )
        if local := package.get("path"):
            place = folder / local
        yield _line("Pipfile.lock", name, place, package.get("hashes", ()), package.get("markers"))


def _line(lock: str, name: str, place: str | Path | None, hashes: Iterable[str], marker: str | None) -> str | Path:
    if isinstance(place, Path) and _is_here(place):
        return place
    if place is None or isinstance(place, Path):
        raise EggBuildError(
            f"{lock}: {name} comes from a folder or file that is not here: put it there, publish it, or name its URL"
        )
    line = f"{name}{place} ; {marker}" if marker else f"{name}{place}"
    return "".join([line, *(f" --hash={one}" for one in hashes)])


# --- requirements that are declared and not locked


def _of_pyproject(folder: Path) -> _Declared | None:
    if not (folder / _PYPROJECT).is_file():
        return None
    pyproject = _read(folder / _PYPROJECT, tomllib.loads)
    lines: list[str | Path] = [*map(str, pyproject.get("project", {}).get("dependencies", ()))]
    lines = lines or [*_of_tables(folder / _PYPROJECT, _poetrys(pyproject), _poetry_range)]
    return _Declared(_PYPROJECT, lines) if lines else None


def _poetrys(pyproject: dict[str, Any]) -> dict[str, Any]:
    """The packages that Poetry's table requires at run time, by name, and `python`."""
    found: dict[str, Any] = pyproject.get("tool", {}).get("poetry", {}).get("dependencies", {})
    return found


def _of_pipfile(folder: Path) -> _Declared | None:
    if not (folder / _PIPFILE).is_file():
        return None
    pipfile = _read(folder / _PIPFILE, tomllib.loads)
    packages = pipfile.get("packages", {})
    lines = [*_of_tables(folder / _PIPFILE, packages, lambda version: version.replace("*", ""))]
    return _Declared(_PIPFILE, lines, python=pipfile.get("requires", {}).get("python_version", ""))


def _of_tables(file: Path, tables: dict[str, Any], version: Callable[[str], str]) -> Iterator[str | Path]:
    """The lines for entries such as `name = "^1.0"` and `name = {version = "^1.0", extras = […], git = …}`."""
    for name, said in tables.items():
        table = said if isinstance(said, dict) else {"version": said}
        if name == "python" or not isinstance(said, dict | str) or table.get("optional"):
            continue
        extras = f"[{','.join(table['extras'])}]" if table.get("extras") else ""
        place: str | Path | None = version(table.get("version", "*"))
        if "git" in table:
            at = next((f"@{table[kind]}" for kind in ("rev", "ref", "tag", "branch") if kind in table), "")
            place = f" @ git+{table['git']}{at}"
        elif "path" in table or "file" in table:
            local = str(table.get("path", table.get("file")))
            place = f" @ {local}" if "://" in local else file.parent / local
        yield _line(file.name, f"{name}{extras}", place, (), table.get("markers"))


def _poetry_range(text: str) -> str:
    """The range in the form of PEP 440: `^3.11` is `>=3.11,<4`, `~3.11` is `>=3.11,<3.12`. Empty if any version will
    do, or if the range has alternatives (`||`).
    """
    parts = [part.strip() for part in text.split(",") if part.strip() not in {"", "*"}]
    found = ",".join(map(_poetry_part, parts))
    return _range(found) if "||" not in text else ""


def _poetry_part(part: str) -> str:
    kind, version = part[0], part.lstrip("^~= ")
    numbers = [int(number) for number in re.findall(r"\d+", version.split("-")[0])[:3]]
    if kind == "^":
        # the first number that is not 0 stays
        place = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
    elif kind == "~" and not part.startswith("~="):
        place = min(1, len(numbers) - 1)
    else:
        return f"=={part}" if kind.isdigit() else part
    return f">={version},<{'.'.join(map(str, [*numbers[:place], numbers[place] + 1]))}"


def _of_setup_cfg(folder: Path) -> _Declared | None:
    lines = [line.strip() for line in _option(folder, "install_requires").splitlines() if line.strip()]
    return _Declared("setup.cfg", [*lines]) if lines else None


def _option(folder: Path, name: str) -> str:
    """An option of setup.cfg; empty if it is absent."""
    config = ConfigParser(interpolation=None, strict=False)
    with suppress(ParsingError, UnicodeDecodeError):
        config.read(folder / "setup.cfg", encoding="utf-8")
    return config.get("options", name, fallback="")


def _of_setup_py(folder: Path) -> _Declared | None:
    """The requirements in setup.py, if they are literals. The file is never run."""
    path = folder / "setup.py"
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    named = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    keywords = [node for node in ast.walk(tree) if isinstance(node, ast.keyword)]
    said = {
        node.arg: named.get(node.value.id) if isinstance(node.value, ast.Name) else node.value for node in keywords
    }
    lines, pythons = _constant(said.get("install_requires")), _constant(said.get("python_requires"))
    if not isinstance(lines, list | tuple) or not all(map(_is_requirement, lines)) or not lines:
        return None
    return _Declared(path.name, [*lines], pythons if isinstance(pythons, str) else "")


def _constant(node: ast.AST | None) -> Any:
    with suppress(ValueError, TypeError):
        return ast.literal_eval(node) if isinstance(node, ast.expr) else None
    return None


def _is_requirement(line: Any) -> bool:
    try:
        return bool(Requirement(line))
    except (InvalidRequirement, TypeError):
        return False


_UNLOCKED = (_of_pyproject, _of_setup_cfg, _of_pipfile, _of_setup_py)
