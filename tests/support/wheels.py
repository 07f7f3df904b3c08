"""Wheels without a network: made of what is installed here, or of a few lines."""

from __future__ import annotations

import zipfile
from importlib.metadata import Distribution, distribution, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheel(folder: Path, name: str, version: str, files: dict[str, str], needs: tuple[str, ...] = ()) -> Path:
    """A wheel with these modules, which requires `needs`."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {need}\n" for need in needs)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    content = {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": _WHEEL}
    with zipfile.ZipFile(path, "w") as wheel:
        for member, text in content.items():
            wheel.writestr(member, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{member},,\n" for member in [*content, f"{info}/RECORD"]))
    return path


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
