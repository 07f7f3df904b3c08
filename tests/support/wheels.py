"""Wheels without a network: made of what is installed here, or of a few lines."""

from __future__ import annotations

import io
import json
import site
import tarfile
import zipfile
from collections.abc import Mapping
from importlib.metadata import Distribution, distribution, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sites.server import Reply, links

WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheels_of_node(folder: Path) -> None:
    """Those that every environment has. That of Scrapy only leads to the Scrapy that is installed."""
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
    """A site's page at `/` with those in the folder, to be installed from there."""
    wheels = {f"/{path.name}": Reply(path.read_bytes(), content_type="application/zip") for path in folder.iterdir()}
    return {**wheels, "/": links(*wheels)}


def wheels_of(folder: Path, *names: str) -> None:
    """Wheels of what is installed under these names, and of all that they require."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted, done = list(names), set[str]()
    while wanted:
        name = canonicalize_name(wanted.pop())
        if name not in done:
            done.add(name)
            _pack(distribution(name), folder)
            wanted += [one.name for one in map(Requirement, requires(name) or ()) if _applies(one)]


def _applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


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
            # one of these has a time of before 1980
            member = zipfile.ZipInfo(str(file))
            member.external_attr = 0o644 << 16
            wheel.writestr(member, Path(str(file.locate())).read_bytes())
        wheel.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in [*kept, f"{info}/RECORD"]))


def write_source(folder: Path, name: str, number: str, files: dict[str, str]) -> Path:
    """A source distribution with these modules, whose way to build itself needs nothing else."""
    path, top = folder / f"{name}-{number}.tar.gz", f"{name}-{number}"
    content = {
        **files,
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND.format(name=name, number=number, modules=[*files], needs=(), wheel=WHEEL),
    }
    with tarfile.open(path, "w:gz") as archive:
        for member, text in content.items():
            info = tarfile.TarInfo(f"{top}/{member}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


#: A build backend of a few lines, for a project that has its modules in `modules`.
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
    """A site's pages at `/simple/` with what is in the folder, and the time when each was uploaded, by its name."""
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
