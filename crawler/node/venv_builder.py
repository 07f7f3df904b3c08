"""`python -m crawler.node.venv_builder`: builds a virtual environment with what a project depends on, as the
`BuildPlan` in its environment says. Its log goes to stderr, its answer to stdout.

Each set of packages has a folder of its own, `<hash>/venv`, which any number of projects share. It is built under
another name and renamed when it is complete. The node's own packages are not in it, so neither can spoil the other.

Nothing that is installed is executed: wheels are unpacked, and compiled by an interpreter that does not import them.
A source distribution would run its own code here, so it is refused unless the node's settings allow it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn, Self
from urllib.parse import unquote
from uuid import uuid4

import psutil
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import BaseModel
from uv import find_uv_bin

from crawler.node.projects import EggError
from crawler.node.pythons import BROUGHT, DOWNLOAD, FOUND, OLDEST, Python, choose, own, refused
from gateway.contract.crawl import MAX_REQUIREMENTS
from gateway.contract.outbox import open_lock, read_file, remove_tree
from gateway.contract.reasons import Reason
from gateway.contract.requirements import (
    CHOOSE,
    OLDEST_SCRAPY,
    RAISED,
    Conditions,
    is_too_old,
    raised_day,
    raised_words,
    read_conditions,
    read_stack,
)
from gateway.crash_points import state_change

#: The folder of all virtual environments, beside that of the eggs.
VENVS = "venvs"
#: Variable with the plan as JSON. It is no argument, because `ps` would show passwords in the URLs of indexes.
PLAN = "DISCOVERYBOT_BUILD"
#: Variables of Scrapyd's environment that are passed on to uv.
PASSED_ON = (
    "PATH",
    "HOME",
    "TMPDIR",
    "PYENV_ROOT",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
)
#: A variable that only tests set. This process gets it besides those for uv.
OF_TESTS = "DISCOVERYBOT_CRASH_PLAN"


class BuildPlan(BaseModel):
    """What is to be built, and from which sources."""

    requirements: Path
    #: The folder of all virtual environments.
    folder: Path
    #: Id of the process that waits for the environment. If it is gone, the build ends.
    parent: int | None = None
    #: Whether to look for newer packages even if there is already an environment for these requirements.
    fresh: bool = True
    #: Scrapy's version if the requirements have none.
    scrapy: str
    index_url: str = ""
    extra_index_urls: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    #: Prefixes of the URLs that requirements can name directly.
    sources: tuple[str, ...] = ()
    from_source: bool = False
    #: Whether a later version is taken of a package that cannot be built.
    lenient: bool = False
    #: Sources of Python besides the node's own: `found`, `download`, and folders with interpreters.
    pythons: tuple[str, ...] = (FOUND,)
    #: Bytes that stay free on the disk, and most bytes of an environment.
    keep_free: int = 0
    most_bytes: int = 2 << 30
    #: Maximum number of seconds for the whole build.
    seconds: float = 600.0


class BuildAnswer(BaseModel):
    #: The virtual environment.
    venv: Path | None = None
    #: Why the build failed: the fault of the requirements (`problem`) or of this node (`unfit`).
    problem: str | None = None
    unfit: str | None = None
    #: The code of the problem.
    reason: Reason | None = None
    #: The package that cannot be built, if that is the problem.
    unbuildable: str | None = None


class UnbuildableError(EggError):
    """A package has no wheel for this Python, and cannot be built here."""

    def __init__(self, package: str, message: str) -> None:
        super().__init__(Reason.BUILD_FAILED, message)
        self.package = package


class NoWheelError(UnbuildableError):
    """A package has no wheel for this Python, and is not to be built here."""


# --- which requirements are allowed

_COMMENT = re.compile(r"(^|\s)#.*")
_HASH = re.compile(r"\s--hash[= ]\S+")
_INDEX = re.compile(r"(-i|--index-url|--extra-index-url)[= ]+(?P<url>\S+)")
#: Signs of a URL that uv would fetch from elsewhere than was checked: uv replaces variables with those of its
#: environment, which has the indexes' passwords, and follows `..` to folders that are not allowed.
_MISLEADING = re.compile(r"\$\{|\\|/\.\.")


def read_requirements(path: Path, plan: BuildPlan) -> list[str]:
    """The lines with requirements, each with its hashes. Raises `EggError` for a line that is not allowed."""
    lines = []
    for number, line in _logical_lines(_text_of(path)):
        if not _is_known_index(line, plan):
            _check(line, number, plan)
            lines.append(line)
    return lines


def conditions_of(path: Path) -> Conditions:
    """The Python, date and stack that the requirements ask for. Raises `EggError`."""
    text = _text_of(path)
    try:
        return read_conditions(text)
    except ValueError as error:
        raise EggError(
            Reason.REQUIREMENTS_REFUSED, f"requirements.txt: exclude-newer is no date like 2024-10-22: {error}"
        ) from None


def _text_of(path: Path) -> str:
    try:
        return read_file(path, MAX_REQUIREMENTS).decode("utf-8-sig")
    except ValueError:
        raise EggError(Reason.REQUIREMENTS_REFUSED, "requirements.txt is not UTF-8 text of at most 2 MiB") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines and their numbers, without comments and empty lines. Lines that end with a backslash are joined with
    the next.
    """
    begun, number = "", 0
    for count, line in enumerate(text.splitlines(), start=1):
        number = number if begun else count
        begun += " " + _COMMENT.sub("", line).strip()
        if begun.endswith("\\"):
            begun = begun[:-1]
            continue
        if wanted := " ".join(begun.split()):
            yield number, wanted
        begun = ""
    if wanted := " ".join(begun.split()):
        yield number, wanted


def _is_known_index(line: str, plan: BuildPlan) -> bool:
    """Whether the line only names an index that the node uses anyway."""
    index = _INDEX.fullmatch(line)
    known = {url.rstrip("/") for url in (plan.index_url, *plan.extra_index_urls)}
    return index is not None and index["url"].rstrip("/") in known


def _check(line: str, number: int, plan: BuildPlan) -> None:
    where = f"requirements.txt, line {number}: {line.split(' --hash', maxsplit=1)[0][:200]!r}"
    if line.startswith("-"):
        raise EggError(Reason.REQUIREMENTS_REFUSED, f"{where} is an option: {_advice(line)}")
    try:
        url = _requirement(line).url
    except InvalidRequirement:
        raise EggError(
            Reason.REQUIREMENTS_REFUSED,
            f"{where} is no requirement like 'itemloaders>=1.3': put a path's modules beside scrapy.cfg and leave "
            "the line out; write 'name @ URL' for a mere URL",
        ) from None
    if url is not None and _MISLEADING.search(unquote(url)):
        raise EggError(
            Reason.REQUIREMENTS_REFUSED, f"{where} has a URL with a backslash, '..' or a variable: write it out"
        )
    if url is not None and not url.removeprefix("git+").startswith(plan.sources or ("\0",)):
        raise EggError(
            Reason.REQUIREMENTS_REFUSED,
            f"{where} comes from a place that the node does not allow; its operator can (PROJECT_SOURCES=https://, "
            "or the beginning of that URL, and PROJECT_BUILD_SOURCES=true if it is to be built)",
        )


def _advice(line: str) -> str:
    if _INDEX.match(line) or line.startswith(("-f", "--find-links", "--no-index", "--trusted-host")):
        return "indexes and folders of wheels are the node's to choose (PROJECT_INDEX_URL, PROJECT_WHEELS)"
    if line.startswith(("-r", "-c", "--requirement", "--constraint")):
        return "write the other file's lines into this one"
    return "leave it out"


# --- what else is installed

#: What our part of a crawl needs, unless the project chooses a version itself. These packages depend on nothing, so
#: they cannot conflict; a crawl works without those that are too old.
NEEDS = {"orjson": "orjson>=3.10", "redis": "redis>=5", "zstandard": "zstandard>=0.22"}
#: Needed in addition to render pages: without it, a project that has scrapy-playwright cannot fetch anything.
_TO_RENDER = {"psutil": "psutil>=5.9"}


def _added(pins: dict[str, str]) -> list[str]:
    needs = NEEDS | (_TO_RENDER if "scrapy-playwright" in pins else {})
    return [requirement for name, requirement in needs.items() if name not in pins]


def _pins(resolved: str) -> dict[str, str]:
    """The resolved versions by name; the version is empty for packages from a URL."""
    pins: dict[str, str] = {}
    for _, line in _logical_lines(resolved):
        requirement = _requirement(line)
        name = canonicalize_name(requirement.name)
        pins[name] = next((one.version for one in requirement.specifier), "")
    return pins


#: The renderer's requirement. Our renderer cannot work with an older one: the project could fetch nothing.
RENDERER = "scrapy-playwright>=0.0.48,<0.1"
_RENDERERS = [f"0.0.{number}" for number in range(48, 200)]
#: What scrapy-playwright needs. If it is replaced by a newer release, pins of these packages fit only the older one.
_OF_RENDERER = frozenset({"greenlet", "playwright", "pyee"})


def _with_renderer(lines: list[str], log: Log) -> list[str]:
    """The lines, with a usable scrapy-playwright instead of one that is too old. The log says if it was replaced."""
    named = [line for line in lines if canonicalize_name(_requirement(line).name) == "scrapy-playwright"]
    old = [line for line in named if not any(map(_requirement(line).specifier.contains, _RENDERERS))]
    if not old:
        return lines
    log.say(f"it asks for {_HASH.sub('', old[0])}, with which no node can render pages: it gets {RENDERER}")
    return [*(_at_least(line, _OF_RENDERER) for line in lines if line not in old), RENDERER]


def _raised(lines: list[str], log: Log) -> list[str]:
    """The lines, with the oldest usable Scrapy instead of one that is too old. The log says if it was replaced."""
    if not (old := [line for line in lines if is_too_old(_requirement(line))]):
        return lines
    log.say(raised_words(_requirement(old[0])))
    return [*(_at_least(line, _OF_SCRAPY) for line in lines if line not in old), RAISED, *_NEEDED_ONCE]


#: What Scrapy needs. If Scrapy is replaced by a newer release, pins of these packages fit only the older one.
_OF_SCRAPY = frozenset(
    {
        *("attrs", "automat", "cffi", "constantly", "cryptography", "cssselect", "h2", "hpack", "hyperframe"),
        *("hyperlink", "idna", "incremental", "itemadapter", "itemloaders", "jmespath", "lxml", "packaging"),
        *("parsel", "priority", "protego", "pyasn1", "pyasn1-modules", "pycparser", "pydispatcher", "pyopenssl"),
        *("pyparsing", "queuelib", "service-identity", "six", "tldextract", "twisted", "w3lib", "zope-interface"),
    }
)
#: Former dependencies of Scrapy that projects have imported without declaring them.
_NEEDED_ONCE = ("six",)


def _at_least(line: str, names: frozenset[str]) -> str:
    """The line with `==` turned into `>=`, if it is a requirement of one of these names."""
    wanted = _requirement(line)
    if canonicalize_name(wanted.name) in names and not wanted.url:
        parts = [part for part in wanted.specifier if part.operator == "==" and not part.version.endswith("*")]
        if parts:
            wanted.specifier = SpecifierSet(f">={parts[0].version}")
            return str(wanted)
    return line


#: Operators whose version is the oldest that is wanted.
_OLDEST_OF = frozenset({">=", ">", "==", "~="})


def _without_limit(line: str) -> str:
    """The line without its upper limits on versions."""
    wanted = _requirement(line)
    if not wanted.url:
        versions = (part.version for part in wanted.specifier if part.operator in _OLDEST_OF)
        # a local version, the part after a plus sign, cannot be compared
        oldest = (version.removesuffix(".*").partition("+")[0] for version in versions)
        wanted.specifier = SpecifierSet(",".join(f">={version}" for version in oldest))
    return str(wanted)


def _scrapy(lines: Iterable[str], plan: BuildPlan) -> str:
    """The requirement for a Scrapy that a node can run. Unless the project chooses a version, it is not later than
    the node's own, which is the latest that was tested. It is resolved together with all other requirements.
    """
    return f"scrapy>={OLDEST_SCRAPY}" if _chooses_scrapy(lines) else f"scrapy>={OLDEST_SCRAPY},<={plan.scrapy}"


def _chooses_scrapy(lines: Iterable[str]) -> bool:
    named = (one for one in map(_requirement, lines) if canonicalize_name(one.name) == "scrapy")
    return any(one.url or any(part.operator in CHOOSE for part in one.specifier) for one in named)


def _requirement(line: str) -> Requirement:
    return Requirement(_HASH.sub("", line))


def _names(lines: Iterable[str]) -> set[str]:
    return {canonicalize_name(_requirement(line).name) for line in lines}


#: Packages in lists that `pip freeze` has made on Windows; they cannot be installed elsewhere.
_OF_WINDOWS = frozenset({"pypiwin32", "pywin32", "pywinpty", "twisted-iocpsupport", "win32-setctime", "wmi"})
#: A package in lists that were made on Debian, although no index has it.
_OF_DEBIAN = frozenset({"pkg-resources"})


def _without_others(lines: Iterable[str], log: Log) -> list[str]:
    """The lines without packages that only exist on another system."""
    left_out = _OF_DEBIAN if sys.platform == "win32" else _OF_DEBIAN | _OF_WINDOWS
    kept = []
    for line in lines:
        if canonicalize_name(_requirement(line).name) in left_out:
            log.say(f"left out, for this system has none: {line.partition(' ')[0]}")
        else:
            kept.append(line)
    return kept


def _without(lines: list[str], packages: str, log: Log) -> list[str]:
    """The lines without these packages, of which no version can be built here."""
    left_out = {canonicalize_name(name) for name in packages.split()}
    if left_out:
        log.say(f"left out, for it cannot be built here: {packages}")
    return [line for line in lines if not _names([line]) & left_out]


#: Versions of Scrapy below the first need the limit beside it, because a later release of that package broke them.
_LATEST_FOR = (("2.13", "w3lib<2.5"), ("2.13.4", "twisted<26"))


def _suiting(pins: dict[str, str]) -> list[str]:
    """The limits that this version of Scrapy needs, as far as `pins` exceed them."""
    scrapy = pins.get("scrapy")
    if not scrapy:
        return []
    limits = [Requirement(limit) for below, limit in _LATEST_FOR if Version(scrapy) < Version(below)]
    return [str(one) for one in limits if pins.get(one.name) and not one.specifier.contains(pins[one.name])]


class Way(NamedTuple):
    """One way to meet requirements."""

    #: Requirements in addition to the project's.
    added: list[str]
    #: As `Conditions.exclude_newer`.
    date: str = ""
    #: What the log says if this way fails and the next one is tried.
    otherwise: str = ""


def _ways(lines: list[str], said: Conditions, plan: BuildPlan) -> Iterator[Way]:
    """The ways to meet the requirements, the best first. If the project names a date, it applies to each."""
    stack = read_stack(said.stack)
    if stack is not None and not said.exclude_newer:
        otherwise = f"they cannot be met with the versions of stack {said.stack}; trying today's versions"
        can_run = Version(stack.scrapy) >= OLDEST_SCRAPY
        nearest = f"scrapy~={stack.scrapy}.0" if can_run else RAISED
        yield Way([] if _chooses_scrapy(lines) else [nearest], stack.date if can_run else "", otherwise)
    yield Way([_scrapy(lines, plan)], raised_day(said.exclude_newer))


# --- one environment: complete, or absent

#: Increase this when a release puts something else into environments.
_FORMAT = 1
#: Prefix of folders that are not complete; they are removed when Scrapyd starts.
INCOMING = ".incoming-"
BUILD_LOG, _LOCK_FILE = "build.log", "requirements.txt"
_VENV = "venv"
#: Prefix of the empty file whose name says for which requirements a folder was built.
_FOR = "for-"


def build(plan: BuildPlan, log: Log) -> Path:
    """The virtual environment. Raises `EggError` for requirements that cannot be met, and `OSError`."""
    lines, said = read_requirements(plan.requirements, plan), conditions_of(plan.requirements)
    lines = _raised(_with_renderer(_without(_without_others(lines, log), said.without, log), log), log)
    raised = {canonicalize_name(name) for name in said.at_least.split()}
    lines = [_without_limit(line) if _names([line]) & raised else line for line in lines]
    if (python := choose(said, plan.pythons, plan.folder)) is None:
        python = _brought(plan, said, log)
    to_render = [*_TO_RENDER.values()] if "scrapy-playwright" in _names(lines) else []
    # the digest contains the Python that was chosen, not the project's own wish
    decisive = filter(None, (raised_day(said.exclude_newer), said.stack, *to_render))
    asked = _digest([*sorted(lines), *decisive], plan, python)
    is_locked = bool(lines) and all("--hash" in line for line in lines)
    found = _found(plan.folder, asked)
    if found is not None and (is_locked or not plan.fresh):
        return found
    _require_room(plan)
    work = plan.folder / f"{INCOMING}{uuid4().hex}"
    try:
        work.mkdir()
        with using_cache(plan.folder):
            uv = Uv(plan, work, log, python)
            uv.raised = raised if plan.lenient and not any("--hash" in line for line in lines) else None
            venv = _build(plan, lines, said, uv)
        (venv.parent / f"{_FOR}{asked}").touch()
        return venv
    finally:
        remove_tree(work)


def _brought(plan: BuildPlan, said: Conditions, log: Log) -> Python:
    """A Python that fits, downloaded by uv if the node allows it. Raises `EggError`."""
    if DOWNLOAD in plan.pythons:
        with suppress(EggError):
            Uv(plan, plan.folder, log).bring_python(said.requires_python)
        if python := choose(said, plan.pythons, plan.folder):
            return python
    raise refused(said, plan.pythons, plan.folder)


def _build(plan: BuildPlan, lines: list[str], said: Conditions, uv: Uv) -> Path:
    way, resolved = _resolved(plan, lines, said, uv)
    pins, work = _pins(resolved), uv.work
    added = _added(pins)
    hashes = sorted(line for line in lines if "--hash" in line)
    content = plan.folder / _digest([*sorted(resolved.splitlines()), *added, *hashes], plan, uv.python)
    with _alone(content):
        if not has_python(content / _VENV):
            remove_tree(content)  # of a Python that is gone
            (work / "new").mkdir()
            (work / "resolved.txt").write_text(resolved)
            (work / "added.txt").write_text("\n".join(added))
            _fill(way, content, uv)
            (work / "new" / BUILD_LOG).write_text(uv.log.text())
            _put(work / "new", content)
    return content / _VENV


def _resolved(plan: BuildPlan, lines: list[str], said: Conditions, uv: Uv) -> tuple[Way, str]:
    """The first way that meets the requirements, and the lock file that results. Raises `EggError`."""
    *better, last = _ways(lines, said, plan)
    for way in better:
        try:
            return _suited(lines, way, uv)
        except EggError:
            uv.log.say(way.otherwise)
    return _suited(lines, last, uv)


def _suited(lines: list[str], way: Way, uv: Uv) -> tuple[Way, str]:
    """Resolve the requirements. If the resulting Scrapy needs limits on other packages, resolve them again with
    these, unless they contradict the project's. Raises `EggError`.
    """
    resolved = uv.resolve([*lines, *way.added], way.date)
    if limits := _suiting(_pins(resolved)):
        suited = way._replace(added=[*way.added, *limits])
        with suppress(EggError):
            return suited, uv.resolve([*lines, *suited.added], way.date)
        uv.resolve([*lines, *way.added], way.date)
    return way, resolved


def _fill(way: Way, content: Path, uv: Uv) -> None:
    work = uv.work
    venv = work / "new" / _VENV
    uv.create(venv)
    uv.install(venv, way.date)
    uv.log.say("compiling")
    _compile(venv, content / _VENV, uv)
    shutil.copy(work / "resolved.txt", work / "new" / _LOCK_FILE)
    if (size := _make_read_only(venv)) > uv.plan.most_bytes:
        raise EggError(
            Reason.INSTALL_LIMIT,
            f"its requirements take {size >> 20} MiB; {uv.plan.most_bytes >> 20} are allowed: leave out what crawls "
            "do not need, or have the node's operator allow more (PROJECT_MAX_INSTALLED_BYTES)",
        )


@state_change("node.put_venv")
def _put(new: Path, content: Path) -> None:
    try:
        new.rename(content)
    except OSError:
        if not content.exists():  # unless another build was faster
            raise


def _require_room(plan: BuildPlan) -> None:
    if shutil.disk_usage(plan.folder).free < plan.keep_free:
        raise OSError(errno.ENOSPC, "the disk of this node is nearly full")


def _found(folder: Path, asked: str) -> Path | None:
    marks = sorted(folder.glob(f"*/{_FOR}{asked}"), key=lambda mark: mark.stat().st_mtime)
    venvs = [mark.parent / _VENV for mark in marks]
    return next((venv for venv in reversed(venvs) if has_python(venv)), None)


def has_python(venv: Path) -> bool:
    """Whether the Python that the environment uses still exists."""
    return (venv / "bin" / "python").exists()


def _digest(lines: Iterable[str], plan: BuildPlan, python: Python) -> str:
    """A hash of everything that decides which packages an environment has."""
    places = [plan.index_url, *plan.extra_index_urls, "", *plan.wheels, "", str(plan.from_source), plan.scrapy]
    whole = json.dumps([_FORMAT, [*python.key], places, sorted(NEEDS.values()), list(lines)])
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


@contextmanager
def _alone(content: Path) -> Iterator[None]:
    """Hold the lock for this content. A second build of it waits, and then finds what the first has built."""
    with os.fdopen(open_lock(content.with_name(f"{INCOMING}{content.name}.lock")), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile(venv: Path, final: Path, uv: Uv) -> None:
    """Write byte code with an interpreter outside of the environment: a wheel may have files that run when the
    environment's own interpreter starts. Modules that cannot be compiled are reported when they are imported.
    """
    packages = next((venv / "lib").glob("python*/site-packages"))
    moved = ["-s", str(venv), "-p", str(final)]
    mode = ["--invalidation-mode", "unchecked-hash"]
    compiler = [os.path.realpath(uv.python.path), "-I", "-m", "compileall", "-qq", "-j", "2", *mode, *moved]
    uv.run([*compiler, str(packages)], "compile", may_fail=True)


def _make_read_only(venv: Path) -> int:
    """Make all files of the environment read-only, and return their bytes. This protects against accidents only: a
    spider of the same user could still change them.
    """
    size = 0
    for folder, _, files in os.walk(venv, topdown=False):
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                found = path.stat()
                size += found.st_size
                path.chmod(found.st_mode & 0o555)
        Path(folder).chmod(0o555)
    return size


# --- uv: within limits, and without the configuration of the machine

#: Bytes of memory, and of one file: the largest wheels have a library of a gigabyte.
_MEMORY, _FILE = 4 << 30, 2 << 30
#: Seconds between two checks of the clock and the disk.
_LOOK = 0.5
#: Maximum number of characters of a problem's text, and of a log.
_MOST_TOLD, _MOST_LOG = 2000, 256 << 10
#: Bytes of the cache, above which it is emptied.
_MOST_CACHE = 4 << 30
CACHE, _CACHE_LOCK = ".cache", ".cache.lock"
#: uv's message for a full disk, which is the system's.
_FULL = os.strerror(errno.ENOSPC)
#: uv's messages for an index that does not answer, or fails.
_AWAY = (
    "error sending request",
    "HTTP status server error",
    "network timeout",
    "operation timed out",
    "request or response body error",
    "Could not resolve host",
)


class Log:
    """Collects the lines of the build's log, and writes them to stderr."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def say(self, line: str) -> None:
        self._lines.append(line)
        with suppress(OSError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def text(self) -> str:
        return "\n".join(self._lines)[-_MOST_LOG:] + "\n"


class Uv:
    """Runs uv. `work` is an empty folder for its files."""

    def __init__(self, plan: BuildPlan, work: Path, log: Log, python: Python | None = None) -> None:
        self.plan = plan
        self.log = log
        self.work = work
        self.python = python or own()
        #: Packages of which later versions are taken already; `None` where no later ones are tried.
        self.raised: AbstractSet[str] | None = None
        self._end = time.monotonic() + plan.seconds
        self._env = {name: os.environ[name] for name in PASSED_ON if name in os.environ} | self._places()

    def bring_python(self, wanted: str) -> None:
        """Download a Python in this range of versions. Raises `EggError`."""
        place = ["--install-dir", str(self.plan.folder / BROUGHT), "--no-bin"]
        self.log.say(f"downloading Python {wanted}")
        self._uv(["python", "install", *place, wanted], "no suitable Python can be downloaded")

    def resolve(self, lines: list[str], date: str) -> str:
        """Resolve the requirements into a lock file. Raises `EggError` with uv's message."""
        asked, target = self.work / "asked.txt", self.work / "lock.txt"
        asked.write_text("".join(f"{line}\n" for line in lines))
        target.unlink(missing_ok=True)  # otherwise uv keeps its versions
        quiet = ["--no-header", "--no-annotate", "--quiet", "--output-file", str(target)]
        self.log.say(f"resolving the requirements{' as of ' * bool(date)}{date}")
        self._uv(["pip", "compile", *quiet, *_until(date), str(asked)], "the requirements cannot be met")
        return target.read_text()

    def create(self, venv: Path) -> None:
        self._uv(["venv", "--quiet", "--relocatable", "--no-project", str(venv)], "cannot make an environment")

    def install(self, venv: Path, date: str) -> None:
        """Install what was resolved. What is downloaded must have the hashes that the project gives."""
        work = self.work
        target = [*self._source(), "--python", str(venv / "bin" / "python"), "--link-mode", "copy"]
        files = ["-r", str(work / "asked.txt"), "-r", str(work / "added.txt"), "-c", str(work / "resolved.txt")]
        # the date applies to build tools, too, but not to the packages that we add
        ours = (*NEEDS, *_TO_RENDER) if date else ()
        time = [*_until(date), *(f"--exclude-newer-package={name}=2999-12-31" for name in ours)]
        self._uv(["pip", "install", *target, *time, *files], "the requirements cannot be installed")

    def run(self, command: list[str], failed: str, *, may_fail: bool = False) -> None:
        """Run a command. Raises `EggError`, and `OSError` if it failed or was stopped because of the node."""
        process = subprocess.Popen(  # noqa: S603 - our command
            command,
            env=self._env,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=_limit,  # noqa: PLW1509 - there is no other thread now
        )
        said: list[str] = []
        with _Watch(process, self.plan, self._end) as watch:
            with process:
                for line in process.stdout or ():
                    self.log.say(line.rstrip())
                    said.append(line)
            code = process.returncode
        if watch.why is not None:
            raise watch.why
        if code and not may_fail:
            self._refuse(said, code, failed)

    def _refuse(self, said: list[str], code: int, failed: str) -> NoReturn:
        """Raise what a failed command has said."""
        text = _readable("".join(said)) or f"uv ended with {code}"
        _require_room(self.plan)
        words = _last_words(said) if "Git operation failed" in text else text
        if any(away in text for away in _AWAY):  # the project is not at fault
            raise OSError(errno.EHOSTUNREACH, f"{_UNREACHED}. The resolver says: {words}")
        if _FULL in text:
            raise OSError(errno.ENOSPC, text)
        if built := re.search(_BUILDING, text):
            remedy = self._remedy_of_build(built["name"])
            raise UnbuildableError(
                built["name"].partition("==")[0], f"{failed}: {remedy}. Its last words: {_last_words(said)}"
            )
        if (lacking := re.search(_NO_WHEEL, text)) and self._may_raise(lacking["name"]):
            words = f"{lacking['name']} has no wheel for this Python in the versions that are asked for"
            raise NoWheelError(canonicalize_name(lacking["name"]), f"{failed}: {words}")
        reason, remedy = _remedy(text)
        raise EggError(reason, f"{failed}: {remedy}{words[:_MOST_TOLD]}")

    def _may_raise(self, name: str) -> bool:
        """Whether a later version of the package is tried next."""
        return self.raised is not None and canonicalize_name(name) not in self.raised

    def _remedy_of_build(self, requirement: str) -> str:
        """What to do about a requirement that has no wheel for this Python and cannot be built. Nothing if a later
        version is tried next: to find out takes a minute on a busy machine.
        """
        if self._may_raise(requirement.partition("==")[0]):
            return f"{requirement} cannot be built on this node"
        here = ".".join(self.python.version.split(".")[:2])
        newest = self._newest_with_wheel(requirement, int(here.partition(".")[2]))
        if newest is None:
            return (
                f"{requirement} cannot be built on this node: install there what that takes, or ask for a version "
                "that has a wheel"
            )
        said = f"{requirement} has wheels for Python 3.{newest} and older, and cannot be built with {here}"
        if newest < OLDEST.minor:
            return f"{said}; crawls need Python {OLDEST} or later: ask for a later release of it"
        return f"{said}: ask for that Python (requires-python in pyproject.toml), or for a later release"

    def _newest_with_wheel(self, requirement: str, before: int) -> int | None:
        """The minor version of the newest Python 3 for which the index has one."""
        quick = ["pip", "compile", "--quiet", "--no-deps", "--no-header", "--no-config", "--no-build"]
        source = [option for option in self._source() if option != "--no-build"]
        for minor in range(before - 1, _OLDEST_ASKED - 1, -1):
            command = [find_uv_bin(), *quick, *source, "--python", self.python.path, "-"]
            with suppress(subprocess.SubprocessError):
                subprocess.run(  # noqa: S603 - our command
                    [*command, "--python-version", f"3.{minor}"],
                    input=requirement, env=self._env, cwd=self.work, capture_output=True, text=True, check=True,
                    timeout=_ASKED,
                )  # fmt: skip
                return minor
        return None

    def _uv(self, args: list[str], failed: str) -> None:
        python = ["--python", self.python.path] if "--python" not in args and args[0] != "python" else []
        source = self._source() if args[:2] == ["pip", "compile"] else []
        command = [find_uv_bin(), *args, *source, *python, "--no-config", "--no-progress", "--color", "never"]
        try:
            self.run(command, failed)
        except EggError as error:
            is_built = isinstance(error, UnbuildableError) and not isinstance(error, NoWheelError)
            if not is_built or _BUILD_LIMITS in self._env:
                raise
            self.log.say("cannot be built with today's setuptools; trying once more with an older one")
            limits = self.work / "build-limits.txt"
            limits.write_text(_OLD_SETUPTOOLS)
            self._env[_BUILD_LIMITS] = str(limits)
            try:
                self.run(command, failed)
            except EggError:
                raise error from None  # the second error may only say that the old setuptools does not fit

    def _source(self) -> list[str]:
        """Options of uv for the sources of packages, in addition to those in its environment, and for builds."""
        offline = [] if self.plan.index_url or self.plan.extra_index_urls else ["--no-index"]
        if not self.plan.from_source:
            return [*offline, "--no-build"]
        waits = sorted(_SLOW_TO_BUILD - self.raised) if self.raised is not None else []
        return [*offline, *(f"--only-binary={name}" for name in waits)]

    def _places(self) -> dict[str, str]:
        plan = self.plan
        downloads = "manual" if DOWNLOAD in plan.pythons else "never"
        env = {"UV_CACHE_DIR": str(plan.folder / CACHE), "UV_PYTHON_DOWNLOADS": downloads, "UV_SYSTEM_CERTS": "1"}
        indexes = [url for url in (*plan.extra_index_urls, plan.index_url) if url]
        if indexes:  # those before the last one come first
            env["UV_DEFAULT_INDEX"] = indexes.pop()
            env["UV_INDEX"] = " ".join(indexes)
        if plan.wheels:
            env["UV_FIND_LINKS"] = ",".join(plan.wheels)
        pages = [place for place in plan.wheels if "://" in place and not place.startswith("file:")]
        asks = plan.index_url or plan.extra_index_urls or plan.sources or pages or DOWNLOAD in plan.pythons
        if not asks:  # all sources are local
            env["UV_OFFLINE"] = "1"
        return env


def _until(date: str) -> list[str]:
    return ["--exclude-newer", date] if date else []


#: Variable with the path of a file that limits the versions of build tools.
_BUILD_LIMITS = "UV_BUILD_CONSTRAINT"
#: The last setuptools with `use_2to3`, which Python 3.12 cannot import; and the last series with `pkg_resources`.
_OLD_SETUPTOOLS = "setuptools<58; python_version < '3.12'\nsetuptools<81; python_version >= '3.12'\n"
#: Packages that take many minutes to build, if they can be built, and that have wheels in each later version.
_SLOW_TO_BUILD = frozenset(
    {
        *("cryptography", "gevent", "grpcio", "h5py", "lxml", "matplotlib", "numpy", "opencv-python"),
        *("opencv-python-headless", "pandas", "pillow", "pyarrow", "pymupdf", "scikit-learn", "scipy", "shapely"),
    }
)
_NO_WHEEL = r"Wheels are required for `(?P<name>[\w.-]+)` because building from source is disabled"
_BUILDING = r"Failed to (?:download and )?build `(?P<name>[\w.-]+==[^\s`]+)`"
#: Minor version of the oldest Python 3 whose wheels are searched for, and the most seconds for each search.
_OLDEST_ASKED, _ASKED = 6, 20
_ERROR = re.compile(r"\w*(?:Error|Exception|error|fatal)\b.*: \S")
_MOST_LAST_WORDS = 300


def _last_words(said: list[str]) -> str:
    """The last line that says what is wrong."""
    lines = [line for line in map(_readable, said) if line and not line.startswith("hint:")]
    wrong = [line for line in lines if _ERROR.match(line)] or lines
    return wrong[-1][:_MOST_LAST_WORDS] if wrong else "none"


_UNREACHED = "this node cannot reach an index or a repository: check its network access, and deploy again"
#: Patterns of uv's messages, each with a code and advice. The first match counts; `{name}` stands for its group.
_REMEDIES = (
    (
        r"Git operation failed",
        Reason.INDEX_UNREACHABLE,
        "the node cannot fetch a git source: let its user reach that repository, or ask for a release of an index",
    ),
    (
        r"building from source is disabled|has no (?:usable )?wheels|--no-build",
        Reason.REQUIREMENTS_UNMET,
        (
            "the node may not build what has no wheel: its operator can allow it with PROJECT_BUILD_SOURCES=true, or "
            "give it wheels with PROJECT_WHEELS"
        ),
    ),
    (
        r"(?P<name>[\w.-]+) was not found in the (?:package registry|provided)",
        Reason.REQUIREMENTS_UNMET,
        "the node's index has no {name}: leave it out, or ask for what it is called there",
    ),
    (
        r"there is no version of (?P<name>\S+) and you require",
        Reason.REQUIREMENTS_UNMET,
        "the node's index has no {name}: ask for a release that it has",
    ),
    (
        r"Hash mismatch",
        Reason.REQUIREMENTS_UNMET,
        "the node's index has other files than those that were locked: lock the requirements again",
    ),
    (
        r"current Python version \((?P<name>\S+)\) does not satisfy",
        Reason.PYTHON_MISSING,
        "with Python {name} they cannot be met: say which one the project needs (requires-python in pyproject.toml)",
    ),
    (
        r"unsatisfiable",
        Reason.REQUIREMENTS_UNMET,
        "change one of those that the resolver names, or deploy with --as-of and a day on which they could be met",
    ),
)


def _remedy(said: str) -> tuple[Reason, str]:
    """The code for a message of uv, and advice to be put before uv's own words; the advice is empty if unknown."""
    for words, reason, remedy in _REMEDIES:
        if found := re.search(words, said):
            return reason, f"{remedy.format(**found.groupdict())}. The resolver says: "
    return Reason.REQUIREMENTS_UNMET, ""


class _Watch:
    """Kills the process when its time is over, the disk is nearly full, or Scrapyd is gone; `why` then says so."""

    def __init__(self, process: subprocess.Popen[str], plan: BuildPlan, end: float) -> None:
        self.why: Exception | None = None
        self._process, self._plan, self._end = process, plan, end
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.is_set():
            if time.monotonic() > self._end:
                self._stop(
                    EggError(
                        Reason.INSTALL_LIMIT,
                        f"its requirements could not be installed within {self._plan.seconds:g} s: deploy it again, "
                        "or have the node's operator allow more (PROJECT_BUILD_SECONDS)",
                    )
                )
            elif shutil.disk_usage(self._plan.folder).free < self._plan.keep_free:
                self._stop(OSError(errno.ENOSPC, "the disk of this node is nearly full"))
            elif self._plan.parent not in {None, os.getppid()}:
                self._stop(OSError(errno.ESRCH, "Scrapyd is gone"))
            self._done.wait(_LOOK)

    def _stop(self, why: Exception) -> None:
        self.why = self.why or why
        with suppress(psutil.Error):
            started = psutil.Process(self._process.pid)
            for process in [*started.children(recursive=True), started]:
                process.kill()


def _limit() -> None:
    for limit, most in ((resource.RLIMIT_DATA, _MEMORY), (resource.RLIMIT_FSIZE, _FILE), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # the limit is lower already, or unknown to this system
            resource.setrlimit(limit, (most, most))


def _readable(said: str) -> str:
    """A message of uv as one line, without the tree that uv draws."""
    return " ".join(re.sub(r"[╰─▶├│×]+|^\s*(error|cause): ", " ", said, flags=re.MULTILINE).split())


@contextmanager
def using_cache(folder: Path) -> Iterator[None]:
    """While the block runs, nobody empties uv's cache."""
    cache = folder / CACHE
    cache.mkdir(mode=0o700, exist_ok=True)
    cache.chmod(0o700)  # it has the packages of all projects, so no other user must read it
    with os.fdopen(open_lock(folder / _CACHE_LOCK), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def empty_cache(folder: Path) -> None:
    """Empty the cache of downloads if it has become large."""
    cache = folder / CACHE
    size = sum(path.lstat().st_size for path in cache.rglob("*"))
    if size > _MOST_CACHE:
        _clear_cache(folder)


def _clear_cache(folder: Path) -> None:
    """Empty the cache, unless a build uses it. A build that begins during the removal waits."""
    with suppress(OSError), os.fdopen(open_lock(folder / _CACHE_LOCK), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in (folder / CACHE).iterdir():
            remove_tree(path)


# --- the process

#: Why this node cannot build, by the number of the error.
_UNFIT = {
    errno.ENOSPC: Reason.DISK_FULL,
    errno.EHOSTUNREACH: Reason.INDEX_UNREACHABLE,
    errno.ESRCH: Reason.NODE_SHUT_DOWN,
}


def main() -> None:
    os.umask(0o022)
    if os.getsid(0) != os.getpid():
        os.setsid()
    plan, log = BuildPlan.model_validate_json(os.environ.pop(PLAN)), Log()
    try:
        answer = BuildAnswer(venv=build(plan, log))
    except EggError as error:
        package = error.package if isinstance(error, UnbuildableError) else None
        answer = BuildAnswer(problem=str(error), reason=error.reason, unbuildable=package)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _clear_cache(plan.folder)
        answer = BuildAnswer(unfit=error.strerror or str(error), reason=_UNFIT.get(error.errno or 0))
    log.say(answer.problem or answer.unfit or "the environment is ready")
    sys.stdout.write(answer.model_dump_json())


if __name__ == "__main__":
    main()
