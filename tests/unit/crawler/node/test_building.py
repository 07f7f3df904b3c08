from __future__ import annotations

import errno
import socket
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from wheels import write_wheel

from crawler.node.building import CACHE, Log, Plan, build, read_requirements
from crawler.node.projects import EggError


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("scrapy", "orjson", "redis", "zstandard"):
        write_wheel(folder, name, version(name), {})
    write_wheel(folder, "large", "1.0", {"large.py": "#" * (40 << 20)})
    return folder


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of virtual environments, on a disk of 30 MiB."""
    folder = tmp_path / "venvs"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=30m", "none", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a file system of its own needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def plan_for(tmp_path: Path, text: str, wheels: Path | None = None, **changes: object) -> Plan:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(text)
    places = {"wheels": (str(wheels),)} if wheels else {"index_url": "https://pypi.org/simple"}
    folder = tmp_path / "venvs"
    folder.mkdir(exist_ok=True)
    return Plan.model_validate(
        {"requirements": requirements, "folder": folder, "scrapy": version("scrapy"), **places, **changes}
    )


def left(plan: Plan) -> list[str]:
    """What is there but uv's cache and locks."""
    return [path.name for path in plan.folder.iterdir() if path.name != CACHE and path.suffix != ".lock"]


def test_comments_continued_lines_and_the_nodes_own_index_are_no_requirements(tmp_path: Path) -> None:
    text = "\ufeff# first\n-i https://pypi.org/simple/\na==1 \\\n    --hash=sha256:00 # a\n\nb[c]>=2 ; os_name > ''"
    plan = plan_for(tmp_path, text)
    assert read_requirements(plan.requirements, plan) == ["a==1 --hash=sha256:00", "b[c]>=2 ; os_name > ''"]


def test_a_url_is_taken_only_from_a_source_that_the_node_allows(tmp_path: Path) -> None:
    line = "tool @ git+https://git.example.com/team/tool@v1"
    allowed = plan_for(tmp_path, line, sources=("https://git.example.com/team/",))
    assert read_requirements(allowed.requirements, allowed) == [line]
    other = plan_for(tmp_path, line, sources=("https://git.example.com/others/",))
    with pytest.raises(EggError, match=r"line 1: 'tool @ git.*PROJECT_SOURCES"):
        read_requirements(other.requirements, other)


def test_a_disk_that_fills_while_it_is_installed_is_the_nodes_fault_and_leaves_nothing(
    tmp_path: Path, wheels: Path, disk: Path
) -> None:
    plan = plan_for(tmp_path, "large", wheels)
    with pytest.raises(OSError, match="No space left") as caught:
        build(plan, Log())
    assert caught.value.errno == errno.ENOSPC
    assert left(plan) == []


def test_an_index_that_does_not_answer_is_not_the_projects_fault(tmp_path: Path) -> None:
    with socket.socket() as closed:  # bound, but nobody listens
        closed.bind(("127.0.0.1", 0))
        index = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
        plan = plan_for(tmp_path, "anything", index_url=index)
        with pytest.raises(OSError, match="error sending request"):
            build(plan, Log())
    assert left(plan) == []


def test_nothing_is_installed_on_a_disk_that_is_nearly_full(tmp_path: Path, wheels: Path, disk: Path) -> None:
    plan = plan_for(tmp_path, "scrapy", wheels, keep_free=31 << 20)
    with pytest.raises(OSError, match="the disk of this node is nearly full"):
        build(plan, Log())
    assert left(plan) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"most_bytes": 1 << 20}, "MiB; 1 are allowed"), ({"seconds": 0.0}, "could not be installed within 0 s")],
)
def test_what_is_too_large_or_takes_too_long_is_refused_and_leaves_nothing(
    tmp_path: Path, wheels: Path, changes: dict[str, float], why: str
) -> None:
    plan = plan_for(tmp_path, "large", wheels, **changes)
    with pytest.raises(EggError, match=why):
        build(plan, Log())
    assert left(plan) == []
