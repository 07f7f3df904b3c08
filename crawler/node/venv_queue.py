"""The virtual environments of projects, on Scrapyd's side: who waits for which build, and how each build has gone."""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

from scrapyd.exceptions import RunnerError
from twisted.internet.defer import Deferred, DeferredLock, ensureDeferred
from twisted.internet.defer import TimeoutError as TooLongError
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

import crawler
import gateway
from crawler.node.attempt_files import InstallingError, NodeUnfitError, reason_behind
from crawler.node.projects import RUNTIME
from crawler.node.reactor import reactor
from crawler.node.spawn import Command, CommandError, LimitedTurns
from crawler.node.unpacking import prepare, take_away
from crawler.node.venv_builder import (
    BUILD_LOG,
    INCOMING,
    OF_TESTS,
    PASSED_ON,
    PLAN,
    BuildAnswer,
    BuildPlan,
    empty_cache,
    has_python,
)
from gateway.contract.crawl import REQUIREMENTS, REQUIREMENTS_ON_TOP
from gateway.contract.outbox import read_file
from gateway.contract.reasons import Reason
from gateway.settings import ScrapydSettings

log = Logger()

_BUILDER = "crawler.node.venv_builder"
#: Seconds for which a deployment waits for a build, which goes on after that.
WAIT = 60.0
#: Maximum number of builds at the same time: each compiles on two processors. A build that takes longer than
#: `_LONGEST_TURN` seconds no longer counts, because a build from source may hang.
_AT_ONCE, _LONGEST_TURN = 2, 60.0
#: Seconds for which an environment is kept that no version uses (yet): a deployment may have given up waiting for it.
KEPT_UNUSED = 900.0
#: How many builds are remembered with their result.
_REMEMBERED = 200
#: Seconds for which the result of a build that nobody waited for is kept, in case the project is deployed again.
_UNTOLD = 600.0
_MOST_LOG = 1 << 20


def requirements_of(egg: Path) -> Path | None:
    """The file in an unpacked egg that lists its dependencies, if there is one."""
    return next((egg / name for name in (REQUIREMENTS, REQUIREMENTS_ON_TOP) if (egg / name).is_file()), None)


class Build:
    """One build, whose result any number of callers can wait for."""

    def __init__(self) -> None:
        self.answer: BuildAnswer | None = None
        #: When it ended (monotonic time), if nobody was waiting for it.
        self.untold_since: float | None = None
        self._command: Command | None = None
        self._log = ""
        self._waiting: list[Deferred[BuildAnswer]] = []

    @property
    def log(self) -> str:
        return self._command.said if self._command else self._log

    @property
    def state(self) -> str:
        if self.answer is None:
            return "building"
        return "ready" if self.answer.venv else "failed"

    def begun(self, command: Command) -> None:
        self._command = command

    def ended(self, answer: BuildAnswer) -> None:
        self._log, self._command = self.log, None
        self.answer = answer
        if not self._waiting:
            self.untold_since = time.monotonic()
        for waiter in self._waiting:
            waiter.callback(answer)
        self._waiting.clear()

    async def wait(self, seconds: float | None) -> BuildAnswer:
        """The result of the build. Raises `InstallingError` if it takes longer than `seconds`."""
        if self.answer is not None:
            return self.answer
        waiter: Deferred[BuildAnswer] = Deferred()
        self._waiting.append(waiter)
        if seconds is not None:
            waiter.addTimeout(seconds, reactor)
        try:
            return await waiter
        except TooLongError:
            self._waiting.remove(waiter)
            raise InstallingError(
                f"what it depends on is still being installed after {seconds:g} s, which goes on: "
                "deploy it again to see how that ends",
                Reason.STILL_INSTALLING,
            ) from None


class Venvs:
    def __init__(self, settings: ScrapydSettings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._turns = LimitedTurns[bytes](_AT_ONCE, _LONGEST_TURN)
        #: By project: its builds are made one after the other, so that it never has the turns of all others.
        self._of_projects: WeakValueDictionary[str, DeferredLock] = WeakValueDictionary()
        #: Builds that have not ended, by the requirements they were asked for.
        self._going_on: dict[bytes, Build] = {}
        #: Builds that have ended and whose result nobody has got so far, by the same key.
        self._untold: dict[bytes, Build] = {}
        #: The latest build of each project and version, in the order in which they were asked for.
        self._of: dict[tuple[str, str], Build] = {}
        self._commands: set[Command] = set()
        #: If so, no waiting build begins any more.
        self._is_stopped = False

    def start(self) -> None:
        """Prepare the folder, with links to our own packages. Raises `OSError`."""
        shared = bool(self._settings.user_range)
        prepare(self._folder, shared=shared)
        runtime = self._folder / RUNTIME
        runtime.mkdir(exist_ok=True)
        # other users need no access, unless projects have users of their own
        runtime.chmod(0o755 if shared else 0o700)
        for package in (crawler, gateway):
            link = runtime / package.__name__
            link.unlink(missing_ok=True)
            link.symlink_to(Path(package.__path__[0]))

    def stop(self) -> None:
        self._is_stopped = True
        for command in list(self._commands):
            command.kill("Scrapyd is shut down", Reason.NODE_SHUT_DOWN)

    async def build(
        self, content: bytes, project: str, version: str, *, fresh: bool, within: float | None
    ) -> BuildAnswer:
        """Install what a requirements file with this content asks for, or find it installed. Raises `NodeUnfitError`
        if this node cannot do it or it takes longer than `within` seconds.
        """
        asked = b"%d" % fresh + content
        going_on = self._going_on.get(asked) or self._told_now(asked)
        if going_on is None:
            going_on = self._going_on[asked] = Build()
            ensureDeferred(self._build(going_on, content, asked, project, fresh=fresh))
        self.forget(project, version)
        self._of[project, version] = going_on
        for old in list(self._of)[:-_REMEMBERED]:
            del self._of[old]
        answer = await going_on.wait(within)
        if answer.unfit is not None:
            raise NodeUnfitError(f"what it depends on cannot be installed here: {answer.unfit}", answer.reason)
        return answer

    def _told_now(self, asked: bytes) -> Build | None:
        """A build that has ended lately and whose result nobody has asked for so far."""
        build = self._untold.pop(asked, None)
        if build is None or build.answer is None or build.untold_since is None:
            return None
        is_late = time.monotonic() - build.untold_since > _UNTOLD
        venv = build.answer.venv
        return None if is_late or (venv is not None and not has_python(venv)) else build

    def forget(self, project: str, version: str) -> None:
        """Forget the build of a version that now has other requirements, or none."""
        self._of.pop((project, version), None)

    def told(self, project: str, version: str, venv: Path | None) -> dict[str, Any]:
        """How the installation for this version has gone, as `dependencies.json` answers. `venv` is the environment
        in which the version runs, if any.
        """
        build = self._of.get((project, version))
        if build is not None and (build.answer is None or build.answer.venv is None or venv is None):
            answer = build.answer or BuildAnswer()
            message = answer.problem or answer.unfit
            return {
                "state": build.state, "log": build.log, "message": message, "reason": answer.reason, "packages": [],
            }  # fmt: skip
        if venv is None:
            return {"state": "none", "log": "", "message": None, "packages": []}
        return {"state": "ready", "log": _log_of(venv), "message": None, "packages": sorted(_packages(venv))}

    def remove_unused(self, used: Iterable[Path]) -> Iterator[Path]:
        """Take away the environments that no version uses any more; yields the folders to be removed."""
        recent = time.time() - KEPT_UNUSED
        with suppress(OSError):
            young = [path / "venv" for path in self._folder.iterdir() if path.lstat().st_mtime > recent]
            yield from take_away(self._folder, [*used, *young])

    async def _build(self, build: Build, content: bytes, asked: bytes, project: str, *, fresh: bool) -> None:
        # a copy of the file: the egg may be removed before the build's turn comes
        requirements = self._folder / f"{INCOMING}{uuid4().hex}.txt"
        try:
            requirements.touch(mode=0o600)  # a URL in it may have a password
            requirements.write_bytes(content)
            answer = BuildAnswer.model_validate_json(await self._in_turn(build, project, requirements, fresh=fresh))
        except RunnerError as error:  # the log has its message
            answer = BuildAnswer(unfit="the installation was interrupted", reason=reason_behind(error))
        except (OSError, ValueError) as error:
            answer = BuildAnswer(unfit=str(error))
        except Exception as error:  # noqa: BLE001 - after any error, those who wait must get an answer
            log.failure("cannot install what a project depends on")
            answer = BuildAnswer(unfit=f"{type(error).__name__}: {error}")
        finally:
            del self._going_on[asked]
            with suppress(OSError):
                requirements.unlink()
        build.ended(answer)
        if build.untold_since is not None:
            self._untold[asked] = build
            for old in list(self._untold)[:-_REMEMBERED]:
                del self._untold[old]
        if not self._going_on and not self._is_stopped:
            deferToThread(empty_cache, self._folder)

    async def _in_turn(self, build: Build, project: str, requirements: Path, *, fresh: bool) -> bytes:
        lock = self._of_projects.get(project)
        if lock is None:
            lock = self._of_projects[project] = DeferredLock()
        await lock.acquire()
        try:
            return await self._turns.take(lambda: self._run(build, requirements, fresh=fresh))
        finally:
            lock.release()

    def _run(self, build: Build, requirements: Path, *, fresh: bool) -> Deferred[bytes]:
        if self._is_stopped:
            raise CommandError("Scrapyd is shut down", Reason.NODE_SHUT_DOWN)
        plan = self._plan(requirements, fresh=fresh)
        env = {name: os.environ[name] for name in (*PASSED_ON, "LANG", OF_TESTS) if name in os.environ}
        # the builder's own time limit comes first, and has the better message
        seconds = self._settings.project_build_seconds + 30
        env = {**env, PLAN: plan.model_dump_json()}
        command = Command.start([_BUILDER], env, seconds=seconds)
        self._commands.add(command)
        build.begun(command)
        return command.result.addBoth(self._forget, command)

    def _forget(self, result: Any, command: Command) -> Any:
        self._commands.discard(command)
        return result

    def _plan(self, requirements: Path, *, fresh: bool) -> BuildPlan:
        settings = self._settings
        return BuildPlan(
            requirements=requirements,
            folder=self._folder,
            parent=os.getpid(),
            fresh=fresh,
            scrapy=version_of("scrapy"),
            index_url="" if settings.project_index_url == "none" else settings.project_index_url,
            extra_index_urls=settings.project_extra_index_urls,
            wheels=settings.project_wheels,
            sources=settings.project_sources,
            from_source=settings.project_build_sources,
            lenient=settings.project_lenient,
            pythons=settings.project_pythons,
            keep_free=settings.node_min_free_bytes,
            most_bytes=settings.project_max_installed_bytes,
            seconds=settings.project_build_seconds,
        )


def _log_of(venv: Path) -> str:
    with suppress(OSError):
        return read_file(venv.parent / BUILD_LOG, _MOST_LOG).decode("utf-8", "replace")
    return ""


def _packages(venv: Path) -> Iterator[str]:
    for info in venv.glob("lib/python*/site-packages/*.dist-info"):
        name, _, version = info.name.removesuffix(".dist-info").partition("-")
        yield f"{name.lower().replace('_', '-')}=={version}"
