"""`python -m crawler.node.listing [<egg>]`: which spiders an egg has, or why it cannot be run here; without an egg,
those of the working directory's project.

It imports other people's code, so it is a process of its own, and what that code prints is kept out of the answer: a
`Listing` as JSON on stdout.
"""

from __future__ import annotations

import dis
import inspect
import os
import signal
import sys
from pathlib import Path
from traceback import FrameSummary, StackSummary, extract_tb
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from crawler.node import projects
from gateway.contract.environment import refused_variable
from gateway.contract.outbox import SpiderInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy import Spider

#: Seconds. Scrapyd gives up earlier; this is for the case that it was killed.
_LONGEST = 90


class Listing(BaseModel):
    """What is known of one project, or of one version of an egg."""

    spiders: list[SpiderInfo] = []
    #: Why it cannot be run.
    problem: str | None = None


def list_own() -> Listing:
    return Listing(spiders=spider_infos(projects.OWN_PROJECT, None))


def list_egg(path: Path, project: str, version: str | None) -> Listing:
    try:
        egg = projects.read_egg(path)
        projects.leave_working_directory()
        projects.check_names(egg)
        projects.activate(egg)
        return Listing(spiders=_import_spiders(egg, project, version))
    except projects.EggError as error:
        return Listing(problem=str(error))


def _import_spiders(egg: projects.EggFile, project: str, version: str | None) -> list[SpiderInfo]:
    os.environ["SCRAPY_SETTINGS_MODULE"] = egg.settings_module
    os.environ.__class__ = _without_variables(str(egg.path))
    try:
        infos = spider_infos(project, version)
    except BaseException as error:
        raise projects.EggError(f"it cannot be imported: {_explain(error, egg)}") from error
    if not infos:
        raise projects.EggError(
            "it has no spiders: look at SPIDER_MODULES in its settings, and at packages in its setup.py"
        )
    return infos


def _without_variables(egg: str) -> type[Any]:
    """A class for `os.environ`. No project's variables are handed to a listing: `os.environ["API_KEY"]` in the egg's
    own code is empty there, and no reason not to list its spiders.
    """

    class Environment(type(os.environ)):  # type: ignore[misc]  # it has no public name
        def __getitem__(self, name: str) -> Any:
            asked_by_egg = sys._getframe(1).f_code.co_filename.startswith(egg)  # noqa: SLF001 - who asks
            if asked_by_egg and name not in self and refused_variable(name) is None:
                return ""
            return super().__getitem__(name)

        def __contains__(self, name: object) -> bool:
            return name in [*self]

        def get(self, name: str, default: Any = None) -> Any:
            return super().__getitem__(name) if name in self else default

    return Environment


def _explain(error: BaseException, egg: projects.EggFile) -> str:
    """One line, as a traceback's last, with the place in the egg and what to do."""
    line = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    frames = [frame for frame in _frames(error) if frame.filename.startswith(str(egg.path))]
    where = f" ({frames[-1].filename[len(str(egg.path)) + 1 :]}, line {frames[-1].lineno})" if frames else ""
    return f"{line}{where}{_advice(error, egg)}"


def _frames(error: BaseException) -> Iterable[FrameSummary]:
    return extract_tb(error.__traceback__) if error.__traceback__ else StackSummary()


def _advice(error: BaseException, egg: projects.EggFile) -> str:
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    missing = error.name.partition(".")[0]
    if missing in egg.packages:
        return ". The egg lacks it: look at packages in its setup.py"
    return f". Install {missing} on this node, or put it into the egg (scrapyd-deploy --include-dependencies)"


# --- what can be said of a spider without running it


def spider_infos(project: str, version: str | None) -> list[SpiderInfo]:
    """The spiders of the project that is on `sys.path`, as its own settings and add-ons have them loaded.

    Raises anything that its modules raise.
    """
    from scrapy.addons import AddonManager  # noqa: PLC0415 - Scrapy is a second's work, which a bad egg is not worth
    from scrapy.spiderloader import get_spider_loader  # noqa: PLC0415 - as above

    from crawler.project_guard import project_settings  # noqa: PLC0415 - as above

    settings = project_settings()
    AddonManager.load_pre_crawler_settings(settings)
    loader = get_spider_loader(settings)
    known = _of_ours if project == projects.OWN_PROJECT else _of_an_egg
    return [
        # by the name under which the loader finds it
        SpiderInfo(project=project, version=version, name=str(name), **known(loader.load(name)))
        for name in sorted(loader.list())
    ]


def _of_ours(spider: type[Spider]) -> dict[str, Any]:
    params = getattr(spider, "Params", None)
    return {
        "description": _first_line(inspect.getdoc(spider)),
        "params_schema": params.model_json_schema() if params else None,
    }


def _of_an_egg(spider: type[Spider]) -> dict[str, Any]:
    return {
        "description": _first_line(spider.__doc__),  # not an inherited one: Scrapy's says nothing of this spider
        "allowed_domains": _domains(getattr(spider, "allowed_domains", None)),
        "own_start": _has_own_start(spider),
    }


def _first_line(text: str | None) -> str:
    return next(iter(inspect.cleandoc(text or "").splitlines()), "")


def _domains(domains: Any) -> list[str]:
    """What is made when the spider is built cannot be known; then nothing is said."""
    if isinstance(domains, str):
        return [domains]
    return [str(one) for one in domains if one] if isinstance(domains, list | tuple | set | frozenset) else []


def _has_own_start(spider: type[Spider]) -> bool:
    """Whether it says itself where it starts: in a method of its own, or by what its constructor sets."""
    from scrapy import Spider  # noqa: PLC0415 - it is there by now

    if spider.start is not Spider.start or hasattr(spider, "start_requests"):
        return True
    return any(_sets_start_urls(vars(cls).get("__init__")) for cls in spider.__mro__ if cls is not Spider)


def _sets_start_urls(constructor: Any) -> bool:
    code = getattr(inspect.unwrap(constructor), "__code__", None) if constructor else None
    return code is not None and any(
        step.opname == "STORE_ATTR" and step.argval == "start_urls" for step in dis.get_instructions(code)
    )


def main() -> None:
    if os.getsid(0) != os.getpid():
        os.setsid()  # so that all that the project starts can be ended with it
    signal.alarm(_LONGEST)
    answer = os.dup(1)
    os.dup2(2, 1)
    version = os.environ.get("SCRAPYD_EGG_VERSION")
    listing = list_egg(Path(sys.argv[1]), os.environ["SCRAPY_PROJECT"], version) if sys.argv[1:] else list_own()
    with os.fdopen(answer, "wb") as stdout:
        stdout.write(listing.model_dump_json().encode())
    sys.stderr.flush()
    os._exit(0)  # threads that the project has started would keep it


if __name__ == "__main__":
    main()
