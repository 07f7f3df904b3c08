"""Wheels without a network: made from installed packages, or from a few lines."""

from __future__ import annotations

import io
import json
import os
import site
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, distribution, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sites.server import Reply, links

WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheels_of_node(folder: Path) -> None:
    """Write the wheels that every environment has. The one of Scrapy only refers to the installed Scrapy."""
    write_wheel(folder, "scrapy", version("scrapy"), {"elsewhere.pth": f"{site.getsitepackages()[0]}\n"})
    for name in ("orjson", "redis", "zstandard"):
        write_wheel(folder, name, version(name), {})


def write_wheel(folder: Path, name: str, number: str, files: dict[str, str], needs: tuple[str, ...] = ()) -> Path:
    """A wheel with these modules, which requires `needs`."""
    info = f"{name}-{number}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n"
    metadata += "".join(f"Requires-Dist: {need}\n" for need in needs)
    path = folder / f"{name}-{number}-py3-none-any.whl"
    content = {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": WHEEL}
    with zipfile.ZipFile(path, "w") as wheel:
        for member, text in content.items():
            wheel.writestr(member, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{member},,\n" for member in [*content, f"{info}/RECORD"]))
    return path


def page_of_wheels(folder: Path) -> dict[str, str | Reply]:
    """A site's page at `/` with the wheels in the folder, from which they can be installed."""
    wheels = {f"/{path.name}": Reply(path.read_bytes(), content_type="application/zip") for path in folder.iterdir()}
    return {**wheels, "/": links(*wheels)}


def wheels_of(folder: Path, *names: str) -> None:
    """Write wheels of the installed packages with these names, and of everything that they require."""
    folder.mkdir(parents=True, exist_ok=True)
    for found in _all_of(map(Requirement, names)):
        _pack(found, folder)


def _all_of(requirements: Iterable[Requirement]) -> Iterator[Distribution]:
    """The installed packages that meet these requirements, and everything that they require."""
    wanted = [(canonicalize_name(one.name), extra) for one in requirements for extra in ("", *one.extras)]
    done = set[tuple[str, str]]()
    while wanted:
        name, extra = wanted.pop()
        if (name, extra) not in done:
            if not extra:
                yield distribution(name)
            done.add((name, extra))
            needed = [one for one in map(Requirement, requires(name) or ()) if _applies(one, extra)]
            wanted += [(canonicalize_name(one.name), more) for one in needed for more in ("", *one.extras)]


def _applies(requirement: Requirement, extra: str = "") -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _pack(found: Distribution, folder: Path) -> None:
    wheel_file = (found.read_text("WHEEL") or "").splitlines()
    tags = [line.partition(":")[2].strip() for line in wheel_file if line.startswith("Tag:")]
    name = canonicalize_name(found.name).replace("-", "_")
    members = [file for file in found.files or () if ".." not in file.parts and "__pycache__" not in file.parts]
    info = next(file.parts[0] for file in members if file.name == "METADATA")
    left_out = {f"{info}/RECORD", f"{info}/INSTALLER", f"{info}/direct_url.json", f"{info}/REQUESTED"}
    kept = [file for file in members if str(file) not in left_out]
    tag = "-".join(".".join(dict.fromkeys(parts)) for parts in zip(*(tag.split("-") for tag in tags), strict=True))
    with zipfile.ZipFile(folder / f"{name}-{found.version}-{tag}.whl", "w") as wheel:
        for file in kept:
            # one of these files has a time before 1980, which ZIP files cannot have
            member = zipfile.ZipInfo(str(file))
            member.external_attr = 0o644 << 16
            wheel.writestr(member, Path(str(file.locate())).read_bytes())
        wheel.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in [*kept, f"{info}/RECORD"]))


# --- the project's own wheels, and an environment with only these and their requirements


def build_wheels(folder: Path, *sources: Path) -> Path:
    """Put the wheel of each source into the folder, as `uv build` makes it with the installed build backend. Returns
    the folder.
    """
    for source in sources:
        _uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder, source)
    return folder


def environment_of(wheels: Path, folder: Path) -> Path:
    """The folder of programs of a new environment with the wheels of a folder. Their other requirements are links to
    the packages installed here, with their byte code.
    """
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    built = {canonicalize_name(path.name.partition("-")[0]) for path in wheels.glob("*.whl")}
    for found in _all_of(map(Requirement, built)):
        if canonicalize_name(found.name) in built:
            continue
        for name in {file.parts[0] for file in found.files or () if file.parts[0] != ".."} - {"__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(found.locate_file(name))))
    programs = folder / "bin"
    _uv("pip", "install", "--no-deps", "--python", programs / "python", *wheels.glob("*.whl"))
    return programs


def _uv(*arguments: str | Path) -> None:
    command = (str(Path(sys.executable).with_name("uv")), *map(str, arguments))
    environment = {**os.environ, "VIRTUAL_ENV": sys.prefix}
    done = subprocess.run((*command, "--offline"), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def write_source(folder: Path, name: str, number: str, files: dict[str, str], builds_with: str = "") -> Path:
    """A source distribution with these modules. Its build needs no other package, or one module."""
    path, top = folder / f"{name}-{number}.tar.gz", f"{name}-{number}"
    build = {"requires": [builds_with] if builds_with else [], "build-backend": "backend", "backend-path": ["."]}
    backend = BACKEND.format(name=name, number=number, modules=[*files], needs=(), wheel=WHEEL)
    content = {
        **files,
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n",
        "pyproject.toml": "\n".join(
            ["[build-system]", *(f"{key} = {json.dumps(said)}" for key, said in build.items())]
        ),
        "backend.py": f"import {builds_with}\n{backend}" if builds_with else backend,
    }
    with tarfile.open(path, "w:gz") as archive:
        for member, text in content.items():
            info = tarfile.TarInfo(f"{top}/{member}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


#: A build backend of a few lines, for a project whose modules are in `modules`.
BACKEND = """
import zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    info = "{name}-{number}.dist-info"
    needs = "".join(f"Requires-Dist: {{need}}\\n" for need in {needs})
    file = "{name}-{number}-py3-none-any.whl"
    with zipfile.ZipFile(f"{{wheel_directory}}/{{file}}", "w") as wheel:
        for module in {modules}:
            wheel.write(module, module.removeprefix("src/"))
        wheel.writestr(f"{{info}}/METADATA", f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {number}\\n{{needs}}")
        wheel.writestr(f"{{info}}/WHEEL", {wheel!r})
        wheel.writestr(f"{{info}}/RECORD", "")
    return file
"""


def index_of(folder: Path, uploaded: Mapping[str, str]) -> dict[str, str | Reply]:
    """A site's pages at `/simple/` for the files in the folder, with the time of each file's upload, by name."""
    pages: dict[str, str | Reply] = {}
    files: dict[str, list[dict[str, object]]] = {}
    for path in sorted(folder.iterdir()):
        pages[f"/files/{path.name}"] = Reply(path.read_bytes(), content_type="application/zip")
        time = f"{uploaded.get(path.name, '2020-01-01')}T00:00:00Z"
        one = {"filename": path.name, "url": f"/files/{path.name}", "hashes": {}, "upload-time": time}
        files.setdefault(canonicalize_name(path.name.partition("-")[0]), []).append(one)
    for name, found in files.items():
        body = json.dumps({"meta": {"api-version": "1.1"}, "name": name, "versions": [], "files": found})
        pages[f"/simple/{name}/"] = Reply(body, content_type="application/vnd.pypi.simple.v1+json")
    return pages
