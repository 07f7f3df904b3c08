"""Which spiders every project on this node has, found out before anybody asks.

Scrapyd runs `scrapy list` when the first `schedule.json` comes, and serves nothing else meanwhile. Here our own
project is listed when Scrapyd starts, and an egg when it is deployed, each in a process of its own. A request in
between waits without keeping others waiting.
"""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from scrapyd.exceptions import RunnerError
from scrapyd.interfaces import IEggStorage, IEnvironment, IPoller
from twisted.application.service import IServiceCollection, Service
from twisted.internet import task
from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred, ensureDeferred, succeed
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from crawler.node.accounts import Account, Accounts
from crawler.node.attempt_files import InstallingError, NodeUnfitError, reason_behind
from crawler.node.attempt_limits import AttemptLimits, LimitWatch, limits_of
from crawler.node.config import NodeConfig, allowed
from crawler.node.eggs import AS_DECLARED, NO_SPIDERS, EggContents, EggStorage, Leniency, described, stored_version
from crawler.node.fork import NOTHING_TOLD, ForkedListing, ForkServer
from crawler.node.listing import MEMORY
from crawler.node.missing_modules import ADDABLE, INSTEAD
from crawler.node.projects import OWN_PROJECT, ProjectCode
from crawler.node.reactor import reactor
from crawler.node.spawn import COMMAND_TIMEOUT, Command, CommandError, LimitedTurns
from crawler.node.unpacking import Holds, prepare, take_away
from crawler.node.venv_queue import KEPT_UNUSED, WAIT, Venvs, requirements_of
from crawler.render.browser import find_chromium, write_browser_file
from crawler.render.setup import has_playwright
from gateway.clock import utc_now
from gateway.contract.crawl import MAX_REQUIREMENTS
from gateway.contract.outbox import (
    CATALOG,
    CLOCK,
    DEPLOYED,
    NOTED,
    is_there,
    read_file,
    remove_tree,
    write_atomically,
)
from gateway.contract.reasons import LIMITS, Reason
from gateway.contract.records import Deployments, NotedDeployment, SpiderInfo, read_record
from gateway.contract.requirements import CHANGED, raised_day, read_conditions
from gateway.crash_points import state_change

log = Logger()

#: Seconds for which a list that lacks a spider is trusted. Files can change while Scrapyd runs.
FRESH = 10.0
#: Seconds after which our own project is listed again if that has failed.
RETRY = 30.0
#: Seconds that the tailer may take to report a deployment; it sends up to 64 MiB to MongoDB.
NOTED_WITHIN = 40.0
_LOOK_AGAIN = 0.05
#: How many projects are imported at the same time (each occupies a processor for a second or more), and the seconds
#: after which an import no longer counts among them: it might hang, and others should not wait for it.
_AT_ONCE, _LONGEST_TURN = 2, 2.0
#: Seconds between two searches for unpacked eggs that belong to no version any more and that no crawl uses.
_SWEEP = 60.0


class Listing(BaseModel):
    """What is known about one project, or about one version of an egg. `crawler/node/listing.py` answers with it."""

    spiders: list[SpiderInfo] = []
    #: Why it cannot be run, in words and as a code.
    problem: str | None = None
    reason: Reason | None = None
    #: What may help: a well-known distribution that the project imports without declaring it, and whether other
    #: versions of its dependencies might work.
    undeclared: str | None = None
    is_outdated: bool = False
    #: Scrapyd itself sets these fields: the package that cannot be built, the unpacked egg, the environment with its
    #: dependencies, and what a lenient node has changed in these.
    unbuildable: str | None = None
    egg: Path | None = None
    venv: Path | None = None
    leniency: Leniency = AS_DECLARED


#: Module that unpacks an egg, always as Scrapyd's own user.
_UNPACKER = "crawler.node.unpacking"
_OWN = Account()


class _Unpacked(BaseModel):
    """The unpacker's answer."""

    folder: Path | None = None
    #: What is wrong with the egg (`problem`), or with this node (`unfit`).
    problem: str | None = None
    unfit: str | None = None
    reason: Reason | None = None


class _Examined(NamedTuple):
    """An unpacked egg that is to be listed; see `SpiderLists.examine`."""

    folder: Path
    project: str
    version: str
    fresh: bool
    within: float | None


#: At most this many distributions are added to an egg by a lenient node, and so many replaced by later versions. Each
#: is one more installation, and a hostile egg could name another one each time.
MOST_GIVEN = 20
#: A project that was changed within this time is not taken for an old one.
_LATELY = timedelta(days=365)


#: Messages about a project that was last changed on that day.
_TRY_DAY = ". It was last changed on {0}: try it with what there was then (`discoverybot deploy --as-of {0}`)"
_DAY_TRIED = ". With what there was on {} it cannot be run either"


def outdated_since(egg: Path) -> str:
    """The day on which the project in an unpacked egg was last changed; empty if that is unknown, was lately, or if
    its requirements name a day themselves.
    """
    with suppress(OSError, ValueError):
        changed = date.fromisoformat(read_file(egg / CHANGED, 100).decode("ascii").strip())
        requirements = requirements_of(egg)
        text = read_file(requirements, MAX_REQUIREMENTS).decode("utf-8", "replace") if requirements else ""
        if utc_now().date() - changed > _LATELY and not read_conditions(text).exclude_newer:
            return changed.isoformat()
    return ""


def _with_advice(listing: Listing, advice: str) -> Listing:
    return listing.model_copy(update={"problem": f"{listing.problem}{advice}"})


class SpiderLists(Service):
    name = "spider_lists"

    def __init__(self, config: NodeConfig, app: Any) -> None:
        #: Module that lists one project, see `crawler.node.listing`.
        self._lister: str = config.get("lister", "crawler.node.listing")
        self._app = app
        self._settings = config.settings
        self._eggs: EggStorage = app.getComponent(IEggStorage)
        self._contents = EggContents(self._eggs)
        self._venvs = Venvs(config.settings, self._eggs.venvs)
        #: How many eggs are being examined: they are unpacked, but belong to no version yet.
        self._examined = 0
        #: Unpacked eggs whose deployment will probably be tried again, and since when (monotonic time).
        self._awaited: dict[Path, float] = {}
        #: Unpacked eggs and environments that crawls use.
        self.holds = Holds()
        #: Projects with versions that are to be unpacked before any of their jobs is launched.
        self._unready = {project for project, version in self._deployed() if not self._contents.get(project, version)}
        app.getComponent(IPoller).held_back = self._unready
        self._sweep = LoopingCall(self.remove_unused)
        self._own: list[SpiderInfo] | None = None
        self._own_listed_at = float("-inf")
        self._retry: DelayedCall | None = None
        self._running: set[Command | ForkedListing] = set()
        self._waiting: dict[str, list[Deferred[list[SpiderInfo]]]] = {}
        self._turns = LimitedTurns[bytes](_AT_ONCE, _LONGEST_TURN)

    def startService(self) -> None:  # noqa: N802 - Twisted's name
        super().startService()
        self._eggs.discard()
        prepare(self._eggs.unpacked, shared=bool(self._settings.user_range))
        self._venvs.start()
        self.holds.find_left(self._settings.outbox)
        self._sweep.start(_SWEEP)
        self._in_background(self._find_browser(), "the browser")
        self._in_background(self._list_all(), "the spiders")

    def stopService(self) -> None:  # noqa: N802 - Twisted's name
        super().stopService()
        self._sweep.stop()
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        self._venvs.stop()
        for command in list(self._running):
            command.kill("Scrapyd is shut down", Reason.NODE_SHUT_DOWN)

    @property
    def _accounts(self) -> Accounts:
        accounts: Accounts = self._app.getComponent(Accounts)
        return accounts

    async def names(self, project: str, version: str | None) -> list[str]:
        """The project's spiders. Raises `RunnerError` where they cannot be listed."""
        return [info.name for info in await self._infos(project, version)]

    async def has(self, project: str, version: str | None, spider: str) -> bool:
        """Whether the project has the spider. Raises `RunnerError` where its spiders cannot be listed."""
        known = spider in await self.names(project, version)
        if known or project != OWN_PROJECT or time.monotonic() - self._own_listed_at < FRESH:
            return known
        return spider in [info.name for info in await self._shared(OWN_PROJECT, self._list_own)]

    def code(self, project: str, version: str | None, spider: str) -> ProjectCode:
        """The code that runs a job of this spider. Raises `EggMissingError`."""
        if project == OWN_PROJECT and version is None:
            # it has no egg (`addversion.json` refuses one)
            return ProjectCode()
        return self._contents.code(project, version, spider)

    @contextmanager
    def examining(self) -> Iterator[None]:
        """Within this context, what `examine` unpacks is not removed although it belongs to no version yet."""
        self._examined += 1
        try:
            yield
        finally:
            self._examined -= 1

    async def examine(
        self, egg: Path, project: str, version: str, *, fresh: bool = True, within: float | None = WAIT
    ) -> Listing:
        """Unpack an egg, which may not be stored yet, install what it depends on, and list its spiders. With `fresh`
        newer dependencies are looked for. The installation can take `within` seconds. Raises `RunnerError` if the
        spiders cannot be listed, and `NodeUnfitError`.
        """
        keep_free = self._settings.node_min_free_bytes
        args = [_UNPACKER, str(egg), str(self._eggs.unpacked), str(keep_free)]
        unpacked = _Unpacked.model_validate_json(await self._run(args, allowed(), None, _OWN))
        if unpacked.unfit is not None:
            raise NodeUnfitError(f"it cannot be unpacked: {unpacked.unfit}", unpacked.reason)
        if unpacked.folder is None:
            return Listing(problem=unpacked.problem or "it cannot be unpacked", reason=unpacked.reason)
        self._venvs.forget(project, version)
        self._awaited.pop(unpacked.folder, None)
        try:
            return await self._suited(_Examined(unpacked.folder, project, version, fresh=fresh, within=within))
        except InstallingError:
            self._awaited[unpacked.folder] = time.monotonic()
            raise

    async def _suited(self, egg: _Examined) -> Listing:
        """The listing with the egg's declared dependencies. If the egg cannot be run with these, a lenient node adds
        missing distributions that are well known, takes later versions of packages that cannot be built, leaves out
        those of which no version can be, and at last takes the versions of the day on which the project was last
        changed.
        """
        day, given, today = outdated_since(egg.folder), AS_DECLARED, Listing()
        unbuilt: Listing | None = None
        while (listing := await self._listed_with(egg, given)).problem is not None:
            today = today if given.as_of else listing
            is_old = bool(day) and (listing.is_outdated or listing.reason == Reason.REQUIREMENTS_UNMET)
            if not self._settings.project_lenient:
                return _with_advice(listing, _TRY_DAY.format(day)) if is_old else listing
            # the listing process runs the egg's code, so its answer is checked
            wanted = listing.undeclared
            if wanted in given.left_out:
                wanted = INSTEAD.get(wanted)
            if wanted in ADDABLE - {*given.added, *given.left_out} and len(given.added) < MOST_GIVEN:
                given = given._replace(added=(*given.added, wanted))
            elif (name := listing.unbuildable) and name not in given.raised and len(given.raised) < MOST_GIVEN:
                given = given._replace(raised=(*given.raised, name))
            elif name in given.raised and name not in given.left_out:
                unbuilt = unbuilt or listing
                given = given._replace(left_out=(*given.left_out, name))
            elif is_old and not given.as_of:
                given = given._replace(as_of=raised_day(day))
            else:
                # what was left out is needed: that it cannot be built is what the user has to know
                problem = unbuilt or (today if given.as_of else listing)
                return _with_advice(problem, _DAY_TRIED.format(given.as_of)) if given.as_of else problem
        return listing

    async def _listed_with(self, egg: _Examined, given: Leniency) -> Listing:
        """Install the egg's dependencies, changed as `given` says, and list its spiders."""
        venv, requirements = None, requirements_of(egg.folder)
        if requirements is not None or given.lines:
            content = read_file(requirements, MAX_REQUIREMENTS) if requirements else b""
            whole = b"\n".join([content, *(line.encode() for line in given.lines)]) if given.lines else content
            built = await self._venvs.build(whole, egg.project, egg.version, fresh=egg.fresh, within=egg.within)
            if built.venv is None:
                problem = built.problem or "what it depends on cannot be installed"
                added = f"with {', '.join(given.added)}, which it does not declare: " if given.added else ""
                # hashes mean that the project accepts no other versions
                unbuildable = None if b"--hash" in content else built.unbuildable
                return Listing(problem=f"{added}{problem}", reason=built.reason, unbuildable=unbuildable)
            venv = built.venv
            await self._compile(egg.folder, venv)
        account = self._accounts.of(egg.project)
        with account.folder_for_a_moment() as folder:
            listing = await self._list(egg.project, egg.version, folder, self._eggs.code(egg.folder, venv))
        return listing.model_copy(update={"egg": egg.folder, "venv": venv, "leniency": given, "unbuildable": None})

    async def _compile(self, egg: Path, venv: Path) -> None:
        """Let a Python that is not the node's own compile the egg. It runs outside of the virtual environment, which
        could contain code that runs when Python starts.
        """
        own = f"python{sys.version_info.major}.{sys.version_info.minor}"
        if not (venv / "lib" / own).is_dir():
            python = (venv / "bin" / "python").resolve()
            mode = ["--invalidation-mode", "unchecked-hash"]
            with suppress(RunnerError):  # importing the module reports what cannot be compiled
                await self._run(["compileall", "-qq", *mode, str(egg)], allowed(), egg, _OWN, str(python))

    def too_much(self, project: str, version: str, spiders: list[SpiderInfo]) -> str | None:
        """Why the catalogue has no room for the spiders of a version that is being deployed; `None` if it
        has room.
        """
        but = self._eggs.listing_path(project, version)
        size = sum(len(info.model_dump_json()) for info in spiders)
        return too_much(project, size, self._contents.sizes(but))

    def dependencies(self, project: str, version: str) -> dict[str, Any]:
        """How the installation of this version's dependencies has gone."""
        contents = self._contents.get(project, version)
        if contents is None:
            return self._venvs.told(project, version, None)
        told = self._venvs.told(project, version, self._contents.venv(contents))
        return {**told, **contents.leniency._asdict()}

    def deployed(self, project: str, version: str, listing: Listing) -> None:
        """Record and publish what an examined egg contains, now that it is deployed. Raises `OSError`."""
        if listing.egg is not None:
            self._contents.keep(
                project, version, listing.egg, listing.venv, listing.spiders, leniency=listing.leniency
            )
        self.write_catalog()

    def undeployed(self) -> None:
        """Publish that versions have been removed, and clean up after them."""
        self.write_catalog()
        self.remove_unused()

    def remove_unused(self) -> None:
        """Remove unpacked eggs and environments that belong to no version and that no crawl uses. Nothing is removed
        while an egg is being examined; the next sweep checks again.
        """
        if self._examined == 0:
            recent = time.monotonic() - KEPT_UNUSED
            self._awaited = {egg: since for egg, since in self._awaited.items() if since > recent}
            used = [*self._contents.used(), *self._awaited, *self.holds.paths()]
            for folder in (*take_away(self._eggs.unpacked, used), *self._venvs.remove_unused(used)):
                deferToThread(remove_tree, folder)

    async def make_known(self, project: str, version: str) -> None:
        """Wait until the platform knows that this egg was deployed here, and runs it. A node without a tailer belongs
        to no platform, so there this returns at once. Raises `RunnerError` if it takes too long.
        """
        if not is_there(self._settings.node_dir / CLOCK):
            return
        with suppress(RunnerError):
            await self._infos(OWN_PROJECT, None)  # without them there is no catalog yet
        number, end = tell_deployment(self._settings.node_dir, project, version), time.monotonic() + NOTED_WITHIN
        while noted_deployments(self._settings.node_dir) < number:
            if time.monotonic() > end or not self.running:
                raise RunnerError(
                    f"'{project}' {version} is deployed on this node, but its tailer has not reported that within "
                    f"{NOTED_WITHIN:g} s: check the tailer and MongoDB; it is reported once they work"
                )
            await task.deferLater(reactor, _LOOK_AGAIN, lambda: None)

    def write_catalog(self) -> None:
        """Publish the known spiders; nothing until our own project was listed for the first time."""
        if self._own is not None:
            write_catalog(self._settings.node_dir, [described(self._own), *self._descriptions()])

    def _descriptions(self) -> Iterator[bytes]:
        for project in sorted(self._eggs.list_projects()):
            *versions, latest = [*self._eggs.list(project)] or [None]
            for version in versions:
                yield self._contents.describe(project, version, latest=False)
            if latest is not None:
                yield self._contents.describe(project, latest, latest=True)

    def _deployed(self) -> list[tuple[str, str]]:
        projects = sorted(self._eggs.list_projects())
        return [(project, version) for project in projects for version in self._eggs.list(project)]

    async def _infos(self, project: str, version: str | None) -> list[SpiderInfo]:
        if project == OWN_PROJECT and self._own:
            return self._own
        versions: list[str] = self._eggs.list(project)
        if not versions:
            return await self._shared(project, self._list_own)
        stored = stored_version(version) if version else versions[-1]
        known = self._contents.get(project, stored)
        if known is not None:
            return known.spiders
        return await self._shared(f"{project}/{stored}", lambda: self._list_egg(project, stored))

    async def _find_browser(self) -> None:
        chromium = find_chromium(self._settings.chromium_path)
        if chromium and not has_playwright():
            log.info("{chromium} is not used: to render pages, install discoverybot[render]", chromium=str(chromium))
            chromium = None
        write_browser_file(self._settings.node_dir, chromium)

    async def _list_all(self) -> None:
        await self._try_own()
        for project in sorted(self._eggs.list_projects()):  # at the same time: installing dependencies can take long
            self._in_background(self._make_ready(project), f"the spiders of {project}")

    async def _make_ready(self, project: str) -> None:
        for version in self._eggs.list(project):
            if self.running and self._contents.get(project, version) is None:
                work = self._shared(f"{project}/{version}", lambda v=version: self._list_egg(project, v))
                await ensureDeferred(work).addErrback(self._report, f"the spiders of {project} {version}")
        self._unready.discard(project)
        self._app.getComponent(IPoller).kick()

    async def _try_own(self) -> None:
        try:
            await self._shared(OWN_PROJECT, self._list_own)
        except RunnerError as error:
            why = str(error)
            log.error("cannot list the spiders of the node's own project: {why}", why=why)  # noqa: TRY400 - no traceback
            if self.running:
                self._own = self._own or []
                self._retry = reactor.callLater(RETRY, lambda: self._in_background(self._try_own(), "the spiders"))
                self.write_catalog()

    async def _list_own(self) -> list[SpiderInfo]:
        self._own = (await self._list(OWN_PROJECT, None, None, ProjectCode())).spiders
        self._own_listed_at = time.monotonic()
        self.write_catalog()
        return self._own

    async def _list_egg(self, project: str, version: str) -> list[SpiderInfo]:
        with self.examining():
            try:
                egg = self._eggs.path(project, version)
                listing = await self.examine(egg, project, version, fresh=False, within=None)
            except (RunnerError, NodeUnfitError) as error:
                listing = Listing(problem=str(error), reason=reason_behind(error))
            known = self._contents.get(project, version)
            if known is not None:  # another egg was deployed under this version meanwhile: its spiders count
                return known.spiders
            if listing.problem:
                self._contents.problems[project, version] = listing.problem, listing.reason
                raise RunnerError(listing.problem)
            self.deployed(project, version, listing)
        return listing.spiders

    async def _shared(self, key: str, work: Any) -> list[SpiderInfo]:
        """Await `work()`. Requests for the same `key` meanwhile share its result."""
        waiter: Deferred[list[SpiderInfo]] = Deferred()
        waiting = self._waiting.setdefault(key, [])
        waiting.append(waiter)
        if len(waiting) == 1:
            ensureDeferred(work()).addBoth(self._answer, key)
        return await waiter

    def _answer(self, result: Any, key: str) -> None:
        for waiter in self._waiting.pop(key):
            waiter.callback(result)

    async def _list(self, project: str, version: str | None, folder: Path | None, code: ProjectCode) -> Listing:
        """List the project's spiders in a process that is limited and watched as a crawl is.

        Raises `RunnerError`.
        """
        account = self._accounts.of(project)
        env = self._app.getComponent(IEnvironment).for_project(project, version)
        own = {**account.environment(folder), "TMPDIR": str(folder)} if folder else {}
        env = {**env, **own, **code.environment}
        env |= {"PYTHONIOENCODING": "UTF-8", MEMORY: str(self._settings.crawl_memory_limit)}
        command = code.command(self._lister)
        for forks in self._forks_for(project, account, code):
            listing = ForkedListing(command, env, folder, account)
            output = await self._turns.take(partial(self._fork, forks, listing))
            with suppress(ValueError):
                return Listing.model_validate_json(output)
            # a failure in a fork of the warm process may be due to the fork alone, so the next way is tried
            if forks is not self._launcher.warm and listing.started.called:
                raise CommandError(listing.problem)
        output = await self._run([code.module(self._lister)], env, folder, account, code.python)
        try:
            return Listing.model_validate_json(output)
        except ValueError:
            raise CommandError(NOTHING_TOLD) from None

    @property
    def _launcher(self) -> Any:
        services: Any = IServiceCollection(self._app)
        return services.getServiceNamed("launcher")

    def _forks_for(self, project: str, account: Account, code: ProjectCode) -> Iterator[ForkServer]:
        """The processes that can fork a listing: first the one that has imported Scrapy, then the small starter."""
        warm, starter = self._launcher.warm, self._launcher.starter
        # after Scrapyd's start, files of our own project can be newer than what the warm process has imported
        is_fresh = self._own is None if project == OWN_PROJECT else warm is not None and warm.is_warm
        if warm is not None and warm.account is account and code.is_plain and is_fresh:
            yield warm
        if starter is not None and starter.account is account:
            yield starter

    def _fork(self, forks: ForkServer, listing: ForkedListing) -> Deferred[bytes]:
        if not self.running:
            raise CommandError("Scrapyd is shut down", Reason.NODE_SHUT_DOWN)
        if not forks.list_spiders(listing):
            return succeed(b"")
        return self._bounded(listing, listing.folder)

    def _bounded(self, process: Command | ForkedListing, folder: Path | None) -> Deferred[bytes]:
        """The process's result. It is killed once it exceeds one of the limits of a crawl. Those include what it
        writes in `folder`.
        """
        limits = limits_of(self._settings, COMMAND_TIMEOUT)._replace(log=0, stall=0)
        words = _words_about(limits)
        watch = LimitWatch(limits, process.account, lambda limit: process.kill(*words[limit]))
        process.started.addCallback(watch.start, folder)
        self._running.add(process)
        return process.result.addBoth(self._ended, process, watch)

    async def _run(
        self,
        args: list[str],
        env: dict[str, str],
        folder: Path | None,
        account: Account,
        python: str = sys.executable,
    ) -> bytes:
        return await self._turns.take(partial(self._start, args, env, folder, account, python))

    def _start(
        self, args: list[str], env: dict[str, str], folder: Path | None, account: Account, python: str
    ) -> Deferred[bytes]:
        if not self.running:
            raise CommandError("Scrapyd is shut down", Reason.NODE_SHUT_DOWN)
        return self._bounded(Command.start(args, env, account, folder, python=python), folder)

    def _ended(self, result: Any, process: Command | ForkedListing, watch: LimitWatch) -> Any:
        watch.stop()
        self._running.discard(process)
        return result

    def _in_background(self, work: Any, what: str) -> None:
        ensureDeferred(work).addErrback(self._report, what)

    def _report(self, failure: Any, what: str) -> None:
        if self.running or not failure.check(RunnerError):
            log.error("cannot find out {what}: {why}", what=what, why=failure.getErrorMessage())


def _words_about(limits: AttemptLimits) -> dict[str, tuple[str, Reason]]:
    """By limit: the message about a process that exceeds it, and its code."""
    words = {
        "memory": f"it took more memory than {limits.memory >> 20} MiB",
        "processes": f"it had more than {limits.processes} processes",
        "files": f"it wrote more than {limits.files >> 20} MiB of files",
        "entries": f"it made more than {limits.entries} files and folders",
        "disk": "it wrote more than is left of a disk that is nearly full",
    }
    told = {name: (f"{said} ({LIMITS[name].setting})", LIMITS[name].reason) for name, said in words.items()}
    return {**told, "timeout": (f"it took longer than {limits.timeout:g} seconds", Reason.TIME_LIMIT)}


def spider_lists(app: Any) -> SpiderLists:
    """The application's spider lists."""
    collection: Any = IServiceCollection(app)
    lists: SpiderLists = collection.getServiceNamed(SpiderLists.name)
    return lists


# --- `catalog.json`: every spider that this node can run, for the tailer to publish


#: Maximum number of bytes in the catalogue about one version, which becomes one document in MongoDB; about all
#: versions of one project; and about all projects. The catalogue is one file: if it were too large to be read, no
#: project deployed here later could be crawled.
MOST_OF_A_VERSION, MOST_OF_A_PROJECT, MOST_OF_ALL = 12 << 20, 32 << 20, 128 << 20


@state_change("node.catalog")
def write_catalog(node_dir: Path, descriptions: Iterable[bytes]) -> None:
    """Write the catalogue with all of `descriptions`, which are JSON arrays. Raises `OSError`."""
    node_dir.mkdir(parents=True, exist_ok=True)
    content = b",".join(one[1:-1] for one in descriptions if one != NO_SPIDERS)
    write_atomically(node_dir / CATALOG, b"[%b]" % content)


def too_much(project: str, size: int, taken: Mapping[str, int]) -> str | None:
    """Why another `size` bytes of the project do not fit into the catalogue; `None` if they do. `taken` has the bytes
    of each project so far.
    """
    sizes = {**taken, project: taken.get(project, 0) + size}
    if size > MOST_OF_A_VERSION:
        return f"the descriptions of its spiders take more than {MOST_OF_A_VERSION >> 20} MiB"
    if sizes[project] > MOST_OF_A_PROJECT:
        return (
            "the descriptions of the spiders of all its versions on this node take more than "
            f"{MOST_OF_A_PROJECT >> 20} MiB: delete versions that are not needed"
        )
    if sum(sizes.values()) > MOST_OF_ALL:
        most = max(sizes, key=lambda name: sizes[name])
        return (
            f"the descriptions of all spiders on this node take more than {MOST_OF_ALL >> 20} MiB, most of it "
            f"of project '{most}': delete versions that are not needed"
        )
    return None


# --- `deployed.json`: deployments here with Scrapyd's own tools, for the tailer to report


@state_change("node.tell_deployment")
def tell_deployment(node_dir: Path, project: str, version: str) -> int:
    """Note the deployment for the tailer, and return its number. Raises `OSError`."""
    told = read_record(node_dir / DEPLOYED, Deployments) or Deployments()
    noted = noted_deployments(node_dir)
    waiting = [one for one in told.deployments if one.number > noted]
    number = max([noted, *(one.number for one in waiting)]) + 1
    waiting.append(NotedDeployment(number=number, project=project, version=version))
    content = Deployments(deployments=waiting).model_dump_json()
    write_atomically(node_dir / DEPLOYED, content.encode())
    return number


def noted_deployments(node_dir: Path) -> int:
    """The number of the last deployment that the tailer has reported."""
    noted = read_record(node_dir / NOTED, NotedDeployment)
    return noted.number if noted else 0
