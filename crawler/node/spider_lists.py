"""Which spiders a project has, found out before anybody asks.

Scrapyd runs `scrapy list` when the first `schedule.json` comes, and stands still for as long as that takes. Here it
runs when Scrapyd starts and after each deployment, and whoever asks in between waits without keeping others waiting.
The answers are kept where Scrapyd's own services look.
"""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import time
from typing import Any

from scrapyd.config import Config
from scrapyd.exceptions import RunnerError
from scrapyd.interfaces import IEnvironment, ISpiderScheduler
from scrapyd.webservice import spider_list
from twisted.application.service import IServiceCollection, Service
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.logger import Logger

from crawler.node.command import Command
from crawler.node.project_names import OWN_PROJECT

log = Logger()

#: Seconds for which an unknown spider is taken at the list's word. Files change under a running Scrapyd.
FRESH = 10.0


class SpiderLists(Service):
    name = "spider_lists"

    def __init__(self, config: Config, app: Any) -> None:
        self._runner: str = config.get("runner", "scrapyd.runner")
        #: Module that writes the node's catalogue of spiders and their parameters; none if empty.
        self._catalog: str = config.get("catalog", "")
        self._app = app
        self._running: dict[tuple[str, ...], Command] = {}
        self._waiting: dict[tuple[str, ...], list[Deferred[bytes]]] = {}
        self._listed_at: dict[tuple[str, str | None], float] = {}

    def startService(self) -> None:  # noqa: N802 - Twisted's name
        super().startService()
        self._in_background(self._warm_up(), "the spiders")
        self.write_catalog()

    def stopService(self) -> None:  # noqa: N802 - Twisted's name
        super().stopService()
        for command in list(self._running.values()):
            command.kill()

    async def names(self, project: str, version: str | None) -> list[str]:
        """The project's spiders. Raises `RunnerError` where they cannot be listed."""
        known: list[str] | None = spider_list.cache[project].get(version)
        return await self.refresh(project, version) if known is None else known

    async def has(self, project: str, version: str | None, spider: str) -> bool:
        """Whether the project has the spider. Raises `RunnerError` where its spiders cannot be listed."""
        known = spider_list.cache[project].get(version)
        if known is not None and (spider in known or self._is_fresh(project, version)):
            return spider in known
        return spider in await self.refresh(project, version)

    async def refresh(self, project: str, version: str | None) -> list[str]:
        """List the project's spiders anew. Raises `RunnerError`."""
        env = self._app.getComponent(IEnvironment).for_project(project, version)
        output = await self._run([self._runner, "list", "-s", "LOG_STDOUT=0"], env, project, version or "")
        spiders = output.decode().splitlines()
        spider_list.cache[project].pop(None, None)  # the newest version may be another one now
        spider_list.cache[project][version] = spiders
        self._listed_at[project, version] = time.monotonic()
        return spiders

    def write_catalog(self) -> None:
        """Have `catalog.json` written, in the background."""
        if self._catalog:
            env = self._app.getComponent(IEnvironment).for_project(OWN_PROJECT)
            self._in_background(self._run([self._catalog], env, "", ""), "the catalogue")

    async def _warm_up(self) -> None:
        projects = self._app.getComponent(ISpiderScheduler).list_projects()
        for project in sorted(projects, key=lambda name: name != OWN_PROJECT):
            if self.running:
                await ensureDeferred(self.refresh(project, None)).addErrback(
                    self._report, f"the spiders of {project}"
                )

    def _is_fresh(self, project: str, version: str | None) -> bool:
        return time.monotonic() - self._listed_at.get((project, version), float("-inf")) < FRESH

    async def _run(self, args: list[str], env: dict[str, str], project: str, version: str) -> bytes:
        """Run a command; whoever asks for the one that is running shares its answer."""
        key = (*args, project, version)
        waiter: Deferred[bytes] = Deferred()
        self._waiting.setdefault(key, []).append(waiter)
        if key not in self._running:
            command = self._running[key] = Command.start(args, {**env, "PYTHONIOENCODING": "UTF-8"})
            command.result.addBoth(self._answer, key)
        return await waiter

    def _answer(self, result: Any, key: tuple[str, ...]) -> None:
        del self._running[key]
        for waiter in self._waiting.pop(key):
            waiter.callback(result)

    def _in_background(self, work: Any, what: str) -> None:
        ensureDeferred(work).addErrback(self._report, what)

    def _report(self, failure: Any, what: str) -> None:
        if self.running or not failure.check(RunnerError):
            log.error("cannot find out {what}: {why}", what=what, why=failure.getErrorMessage())


def spider_lists(app: Any) -> SpiderLists:
    """The application's spider lists."""
    collection: Any = IServiceCollection(app)
    lists: SpiderLists = collection.getServiceNamed(SpiderLists.name)
    return lists
