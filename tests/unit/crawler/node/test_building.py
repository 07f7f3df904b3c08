from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from machine import small_disk
from wheels import write_wheel

from crawler.node import building
from crawler.node.building import CACHE, Log, Plan, Uv, build, has_python, read_requirements
from crawler.node.projects import EggError


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("scrapy", "orjson", "redis", "zstandard"):
        write_wheel(folder, name, version(name), {})
    for other in ("2.12.0", "99.0"):
        write_wheel(folder, "scrapy", other, {})
    write_wheel(folder, "dated", "1.0", {}, ("scrapy<2.13",))
    write_wheel(folder, "large", "1.0", {"large.py": "#" * (40 << 20)})
    return folder


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of virtual environments, on a disk of 30 MiB."""
    folder = tmp_path / "venvs"
    folder.mkdir()
    with small_disk(folder, "30m"):
        yield folder


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


@pytest.mark.parametrize(
    "rest", ["${UV_DEFAULT_INDEX}", "../others/tool", "%2e%2E/others/tool", "..%2fothers/tool", "..\\others\\tool"]
)
def test_a_url_that_uv_would_read_as_another_one_is_refused(tmp_path: Path, rest: str) -> None:
    allowed = "https://git.example.com/team/"
    plan = plan_for(tmp_path, f"tool @ {allowed}{rest}", sources=(allowed,))
    with pytest.raises(EggError, match=r"line 1: 'tool @ .* write it out"):
        read_requirements(plan.requirements, plan)


@pytest.mark.parametrize(
    ("text", "gets"),
    [
        ("", version("scrapy")),
        ("scrapy>=2.11", version("scrapy")),
        ("dated", "2.12.0"),
        ("scrapy==99.0", "99.0"),
    ],
)
def test_scrapy_is_no_later_than_the_nodes_unless_it_is_chosen(
    tmp_path: Path, wheels: Path, text: str, gets: str
) -> None:
    venv = build(plan_for(tmp_path, text, wheels), Log())
    assert [path.name for path in venv.glob("lib/*/site-packages/scrapy-*")] == [f"scrapy-{gets}.dist-info"]


def test_what_was_downloaded_is_closed_to_other_users(tmp_path: Path, wheels: Path) -> None:
    plan = plan_for(tmp_path, "scrapy", wheels)
    (plan.folder / CACHE).mkdir(mode=0o755)
    venv = build(plan, Log())
    assert (plan.folder / CACHE).stat().st_mode & 0o777 == 0o700
    assert list((plan.folder / CACHE).iterdir())
    assert has_python(venv)


def test_an_environment_whose_python_is_gone_is_built_anew(tmp_path: Path, wheels: Path) -> None:
    plan = plan_for(tmp_path, "scrapy", wheels, fresh=False)
    venv = build(plan, Log())
    assert build(plan, Log()) == venv
    (venv / "bin").chmod(0o755)
    (venv / "bin/python").unlink()
    (venv / "bin/python").symlink_to(tmp_path / "gone")
    assert build(plan, Log()) == venv
    assert has_python(venv)


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


@pytest.mark.parametrize(
    "words", ["HTTP status server error (503 Service Unavailable) for url", "distribution due to network timeout."]
)
def test_an_index_that_fails_is_not_the_projects_fault(tmp_path: Path, words: str) -> None:
    uv = Uv(plan_for(tmp_path, ""), tmp_path, Log())
    with pytest.raises(OSError, match="Failed to fetch"):
        uv.run([sys.executable, "-c", f"raise SystemExit('error: Failed to fetch: cause: {words}')"], "failed")


def test_the_cache_is_not_emptied_while_a_build_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_MOST_CACHE", 0)
    with building.using_cache(tmp_path):
        (tmp_path / CACHE / "wheel").write_text("x")
        building.empty_cache(tmp_path)
        assert (tmp_path / CACHE / "wheel").exists()
    building.empty_cache(tmp_path)
    assert list((tmp_path / CACHE).iterdir()) == []


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
