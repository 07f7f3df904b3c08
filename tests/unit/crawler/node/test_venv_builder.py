from __future__ import annotations

import errno
import io
import socket
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from machine import small_disk
from packaging.requirements import Requirement
from sites.server import Site
from wheels import index_of, write_source, write_wheel

from crawler.node import venv_builder
from crawler.node.projects import EggError
from crawler.node.pythons import _others, own
from crawler.node.venv_builder import CACHE, RENDERER, BuildPlan, Log, Uv, build, has_python, read_requirements
from gateway.contract.reasons import Reason
from gateway.contract.requirements import is_too_old


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("scrapy", "orjson", "redis", "zstandard"):
        write_wheel(folder, name, version(name), {})
    for other in ("2.5.1", "2.11.2", "2.12.0", "99.0"):
        write_wheel(folder, "scrapy", other, {})
    write_wheel(folder, "six", "1.17.0", {})
    write_wheel(folder, "twisted", "25.5.0", {})
    write_wheel(folder, "packaging", "26.0", {})
    write_wheel(folder, "olden", "1.0", {}, ("scrapy<2.6",))
    write_wheel(folder, "dated", "1.0", {}, ("scrapy<2.13",))
    write_wheel(folder, "small", "1.0", {})
    write_wheel(folder, "large", "1.0", {"large.py": "#" * (40 << 20)})
    return folder


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of virtual environments, on a disk of 30 MiB."""
    folder = tmp_path / "venvs"
    folder.mkdir()
    with small_disk(folder, "30m"):
        yield folder


def plan_for(tmp_path: Path, text: str, wheels: Path | None = None, **changes: object) -> BuildPlan:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(text)
    places = {"wheels": (str(wheels),)} if wheels else {"index_url": "https://pypi.org/simple"}
    folder = tmp_path / "venvs"
    folder.mkdir(exist_ok=True)
    return BuildPlan.model_validate(
        {"requirements": requirements, "folder": folder, "scrapy": version("scrapy"), **places, **changes}
    )


def left(plan: BuildPlan) -> list[str]:
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


def installed(venv: Path, name: str) -> list[str]:
    """Its versions."""
    found = venv.glob(f"lib/*/site-packages/{name}-*.dist-info")
    return [path.name.removesuffix(".dist-info").rpartition("-")[2] for path in found]


def test_another_python_of_the_machine_is_taken_if_the_nodes_own_does_not_fit(tmp_path: Path, wheels: Path) -> None:
    plan = plan_for(tmp_path, f"# requires-python: !={own().version}\nscrapy", wheels)
    if not (others := [one for one in _others(plan.pythons, plan.folder) if one.version != own().version]):
        pytest.skip("there is one Python on this machine")
    venv = build(plan, Log())
    assert f"version_info = {others[0].version}" in (venv / "pyvenv.cfg").read_text()
    assert list(venv.glob("lib/*/site-packages/scrapy.py")) == []
    again = plan_for(tmp_path, "scrapy", wheels)
    assert build(again, Log()) != venv


def test_the_python_of_its_developer_is_a_wish(tmp_path: Path, wheels: Path) -> None:
    for wished in ("3.99", "3.7.4", "pypy3.10", "my-env"):
        venv = build(plan_for(tmp_path, f"# python: {wished}\nscrapy", wheels), Log())
        assert f"version_info = {own().version}" in (venv / "pyvenv.cfg").read_text()


@pytest.mark.parametrize(
    ("wanted", "allowed", "why"),
    [
        (
            ">=3.99",
            ("found",),
            r"asks for Python >=3.99, and this node has Python 3.* PROJECT_PYTHONS=found,download",
        ),
        (">=3.99", (), rf"and this node has Python {own().version}: install one"),
        ("==3.9.*", ("found",), "crawls need Python 3.11 or later: raise"),
        ("three", ("found",), "is no range of versions"),
    ],
)
def test_a_python_that_is_not_there_is_refused_in_one_line(
    tmp_path: Path, wheels: Path, wanted: str, allowed: tuple[str, ...], why: str
) -> None:
    plan = plan_for(tmp_path, f"# requires-python: {wanted}\nscrapy", wheels, pythons=allowed)
    with pytest.raises(EggError, match=why) as caught:
        build(plan, Log())
    assert "\n" not in str(caught.value)
    assert left(plan) == []


@pytest.fixture
def dated_index(tmp_path: Path) -> Iterator[str]:
    """The address of an index with several versions, each with its day."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("orjson", "redis", "zstandard"):
        write_wheel(folder, name, version(name), {})
    days = {}
    for name, number, day, needs in (
        ("scrapy", "2.11.0", "2023-09-18", ("w3lib", "twisted")),
        ("scrapy", "2.11.2", "2024-05-01", ("w3lib", "twisted")),
        ("scrapy", "2.13.3", "2025-05-01", ("w3lib", "twisted")),
        ("twisted", "22.10.0", "2022-10-30", ()),
        ("twisted", "24.3.0", "2024-03-01", ()),
        ("twisted", "25.5.0", "2025-06-01", ()),
        ("twisted", "26.10.0", "2026-10-01", ()),
        ("w3lib", "2.0.1", "2022-08-11", ()),
        ("w3lib", "2.1.2", "2024-01-01", ()),
        ("w3lib", "2.5.0", "2026-01-01", ()),
        ("newer", "1.0", "2026-02-01", ("w3lib>=2.5",)),
    ):
        days[write_wheel(folder, name, number, {}, needs).name] = day
    # what only our part of a crawl uses is of today
    days |= {path.name: "2026-09-01" for path in folder.glob("orjson-*")}
    with Site(index_of(folder, days)) as site:
        yield f"{site.url}/simple"


@pytest.mark.parametrize(
    ("text", "gets"),
    [
        ("# exclude-newer: 2024-10-22\nscrapy", ("2.11.2", "24.3.0", "2.1.2")),
        # on that day there was no Scrapy that a node can run
        ("# exclude-newer: 2019-07-19\nw3lib", ("2.11.0", "22.10.0", "2.0.1")),
        ("# stack: scrapy:2.11-20241022\nw3lib", ("2.11.2", "24.3.0", "2.1.2")),
        # it is newer than the stack, whose other packages are of today then
        ("# stack: scrapy:2.11-20241022\nnewer\nscrapy==2.13.3", ("2.13.3", "25.5.0", "2.5.0")),
        # none is of a time when nodes could run it: the nearest that they can
        ("# stack: scrapy:1.7-py3\nw3lib", ("2.11.2", "25.5.0", "2.1.2")),
        ("# stack: scrapy:2.5-20220101\nscrapy>=2.13", ("2.13.3", "25.5.0", "2.5.0")),
        ("# stack: scrapy:1.7-py3\nscrapy==2.13.3", ("2.13.3", "25.5.0", "2.5.0")),
        # with the latest of what it needs, neither can be imported
        ("scrapy==2.13.3", ("2.13.3", "25.5.0", "2.5.0")),
        ("scrapy==2.11.2", ("2.11.2", "25.5.0", "2.1.2")),
        # said otherwise, it is as it is said
        ("scrapy==2.13.3\ntwisted==26.10.0", ("2.13.3", "26.10.0", "2.5.0")),
    ],
)
def test_a_time_and_an_old_scrapy_have_what_fits_them(
    tmp_path: Path, dated_index: str, text: str, gets: tuple[str, ...]
) -> None:
    venv = build(plan_for(tmp_path, text, index_url=dated_index), Log())
    assert tuple(installed(venv, name)[0] for name in ("scrapy", "twisted", "w3lib")) == gets
    assert installed(venv, "orjson") == [version("orjson")]


def test_what_can_only_be_built_is_built_where_that_is_allowed_and_else_it_is_said_how(
    tmp_path: Path, wheels: Path
) -> None:
    more = tmp_path / "more"
    more.mkdir()
    write_source(more, "oldopt", "0.6.2", {"oldopt.py": "NAME = 'built'"})
    closed = plan_for(tmp_path, "oldopt").model_copy(update={"index_url": "", "wheels": (str(wheels), str(more))})
    with pytest.raises(EggError, match=r"PROJECT_BUILD_SOURCES=true.* oldopt"):
        build(closed, Log())
    opened = closed.model_copy(update={"from_source": True})
    assert installed(build(opened, Log()), "oldopt") == ["0.6.2"]


def test_what_only_an_old_setuptools_can_build_is_built_with_that(tmp_path: Path, wheels: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    write_source(more, "oldopt", "0.6.2", {"oldopt.py": ""}, builds_with="setuptools")
    write_wheel(more, "setuptools", "57.5.0", {"setuptools.py": ""})
    write_wheel(more, "setuptools", "82.0.0", {"setuptools.py": "raise SystemExit('use_2to3 is invalid')"})
    places = {"index_url": "", "wheels": (str(wheels), str(more)), "from_source": True}
    plan = plan_for(tmp_path, "oldopt").model_copy(update=places)
    assert installed(build(plan, Log()), "oldopt") == ["0.6.2"]


@pytest.mark.parametrize(
    ("tag", "remedy"),
    [
        (
            "cp39-cp39-linux_x86_64",
            r"has wheels for Python 3\.9 and older, .*crawls need Python 3\.11 or later: ask for",
        ),
        (None, "cannot be built on this node: install there what that takes"),
    ],
)
def test_what_is_too_old_to_be_built_is_said_in_one_line(
    tmp_path: Path, wheels: Path, tag: str | None, remedy: str
) -> None:
    more = tmp_path / "more"
    more.mkdir()
    source = write_source(more, "oldnum", "1.0", {"oldnum.py": ""})
    with tarfile.open(source, "w:gz") as archive:
        info = tarfile.TarInfo("oldnum-1.0/setup.py")
        words = b"raise OSError('no such compiler')"
        info.size = len(words)
        archive.addfile(info, io.BytesIO(words))
    if tag is not None:
        write_wheel(more, "oldnum", "1.0", {})
        (more / "oldnum-1.0-py3-none-any.whl").rename(more / f"oldnum-1.0-{tag}.whl")
    setuptools = write_source(more, "setuptools", "80.0", {"setuptools.py": ""})
    assert setuptools.exists()
    places = {"index_url": "", "wheels": (str(wheels), str(more)), "from_source": True}
    with pytest.raises(EggError, match=remedy) as caught:
        build(plan_for(tmp_path, "oldnum==1.0").model_copy(update=places), Log())
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "limit", ["==1.0", "~=1.0.0", "<2", "==1.*", ">=0.5,<1.1,!=1.3", "==1.0 --hash=sha256:00", "==1.0+cu118"]
)
def test_a_later_version_is_taken_than_the_requirements_allow_if_that_is_said(
    tmp_path: Path, wheels: Path, limit: str
) -> None:
    more = tmp_path / "more"
    more.mkdir()
    for number in ("1.0", "2.0"):
        write_wheel(more, "old_num", number, {})
    plan = plan_for(tmp_path, f"# at-least: colour Old.Num\nold-num{limit}\n")
    venv = build(plan.model_copy(update={"index_url": "", "wheels": (str(wheels), str(more))}), Log())
    assert installed(venv, "old_num") == ["2.0"]


@pytest.mark.parametrize("pin", ["scrapy==2.5.1 --hash=sha256:00", "Scrapy==2.10.*", "scrapy~=2.6.0", "scrapy<2.11"])
def test_a_scrapy_that_is_too_old_is_raised_to_the_oldest_that_can_be_run(
    tmp_path: Path, wheels: Path, pin: str
) -> None:
    log = Log()
    # what an old Scrapy needs is pinned as old, and may be there no more
    venv = build(plan_for(tmp_path, f"{pin}\nTwisted==22.4.0 --hash=sha256:00\npackaging==16.8\nsmall", wheels), log)
    assert (installed(venv, "scrapy"), installed(venv, "twisted")) == (["2.11.2"], ["25.5.0"])
    assert (installed(venv, "six"), installed(venv, "small")) == (["1.17.0"], ["1.0"])
    assert installed(venv, "packaging") == ["26.0"]
    assert "which no node can run: it gets 2.11, the oldest that one can" in log.text()


def test_a_scrapy_playwright_with_which_nothing_is_rendered_is_raised(tmp_path: Path, wheels: Path) -> None:
    ours = [Requirement(line) for line in requires("discoverybot") or ()]
    assert Requirement(f'{RENDERER}; extra == "render"') in ours, "the one that ours is written for"
    for number in ("0.0.32", "0.0.48"):
        write_wheel(wheels, "scrapy_playwright", number, {}, ("playwright>=1.40",))
        write_wheel(wheels, "playwright", {"0.0.32": "1.37"}.get(number, "1.50"), {})
    write_wheel(wheels, "psutil", "7.0", {})
    log = Log()
    venv = build(plan_for(tmp_path, "scrapy-playwright==0.0.32 --hash=sha256:00\nplaywright==1.37", wheels), log)
    assert (installed(venv, "scrapy_playwright"), installed(venv, "psutil")) == (["0.0.48"], ["7.0"])
    assert "it asks for scrapy-playwright==0.0.32, with which no node can render pages" in log.text()


def test_what_holds_scrapy_back_is_named(tmp_path: Path, wheels: Path) -> None:
    with pytest.raises(EggError, match=r"olden.* scrapy<2.6.* you require scrapy>=2.11"):
        build(plan_for(tmp_path, "olden", wheels), Log())


@pytest.mark.parametrize(
    "pin", ["scrapy", "scrapy>=2.5", "scrapy~=2.5", "scrapy==2.11", "scrapy<=2.11", "scrapy!=2.5", "scrapy==99.0"]
)
def test_a_scrapy_that_may_be_newer_is_left_as_it_is_asked_for(pin: str) -> None:
    assert not is_too_old(Requirement(pin))
    assert not is_too_old(Requirement("scrapy==2.5.1 ; python_version < '3'"))


def test_what_another_system_listed_is_left_out(tmp_path: Path, wheels: Path) -> None:
    log = Log()
    venv = build(plan_for(tmp_path, "scrapy\npkg-resources==0.0.0\ntwisted-iocpsupport==1.0.2", wheels), log)
    assert installed(venv, "scrapy")
    assert "left out, for this system has none: twisted-iocpsupport==1.0.2" in log.text()


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


@pytest.mark.parametrize(
    ("words", "reason", "remedy"),
    [
        (
            "Failed to download and build `x` cause: Git operation failed",
            Reason.INDEX_UNREACHABLE,
            "let its user reach that repository",
        ),
        (
            "Failed to build `x==1.0` cause: The build backend returned an error",
            Reason.BUILD_FAILED,
            "x==1.0 cannot be built on this node",
        ),
        (
            "x has no wheels because building from source is disabled",
            Reason.REQUIREMENTS_UNMET,
            "PROJECT_BUILD_SOURCES=true",
        ),
        (
            "Because x was not found in the package registry and you require x",
            Reason.REQUIREMENTS_UNMET,
            "index has no x: leave it out",
        ),
        (
            "Because there is no version of x==0.1 and you require x==0.1",
            Reason.REQUIREMENTS_UNMET,
            "index has no x==0.1: ask for a release",
        ),
        (
            "Because the current Python version (3.11.7) does not satisfy Python>=3.12",
            Reason.PYTHON_MISSING,
            "With Python 3.11.7|requires-python",
        ),
        (
            "And because you require y==2, your requirements are unsatisfiable.",
            Reason.REQUIREMENTS_UNMET,
            "--as-of and a day",
        ),
    ],
)
def test_what_to_do_is_said_before_the_resolvers_own_words(
    tmp_path: Path, words: str, reason: Reason, remedy: str
) -> None:
    uv = Uv(plan_for(tmp_path, ""), tmp_path, Log())
    with pytest.raises(EggError, match=remedy) as caught:
        uv.run([sys.executable, "-c", f"raise SystemExit({'error: ' + words!r})"], "failed")
    assert caught.value.reason is reason


@pytest.mark.parametrize(("raised", "is_advised"), [({"y"}, False), ({"x-y"}, True), (None, True)])
def test_no_wheel_is_looked_for_where_a_later_version_is_tried_next(
    tmp_path: Path, raised: set[str] | None, *, is_advised: bool
) -> None:
    uv = Uv(plan_for(tmp_path, "", index_url=""), tmp_path, Log())
    uv.raised = raised
    words = "error: Failed to build `X_y==1.0` cause: The build backend returned an error"
    with pytest.raises(EggError, match=r"X_y==1\.0 cannot be built on this node") as caught:
        uv.run([sys.executable, "-c", f"raise SystemExit({words!r})"], "failed")
    assert ("ask for a version that has a wheel" in str(caught.value)) == is_advised


@pytest.mark.parametrize(("raised", "package"), [(set(), "numpy"), ({"numpy"}, None), (None, None)])
def test_a_package_that_takes_long_to_build_is_wanted_as_a_wheel_at_first(
    tmp_path: Path, raised: set[str] | None, package: str | None
) -> None:
    uv = Uv(plan_for(tmp_path, "", index_url="", from_source=True), tmp_path, Log())
    uv.raised = raised
    assert ("--only-binary=numpy" in uv._source()) == (package is not None)
    words = (
        "error: No solution found cause: Because numpy>=1.23,<1.23.2 has no usable wheels and you require it\n"
        "hint: Wheels are required for `numpy` because building from source is disabled for `numpy`"
    )
    with pytest.raises(EggError, match="has no") as caught:
        uv.run([sys.executable, "-c", f"raise SystemExit({words!r})"], "failed")
    assert getattr(caught.value, "package", None) == package


def test_the_cache_is_not_emptied_while_a_build_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(venv_builder, "_MOST_CACHE", 0)
    with venv_builder.using_cache(tmp_path):
        (tmp_path / CACHE / "wheel").write_text("x")
        venv_builder.empty_cache(tmp_path)
        assert (tmp_path / CACHE / "wheel").exists()
    venv_builder.empty_cache(tmp_path)
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
