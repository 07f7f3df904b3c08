"""`python -m crawler.node.listing`: which spiders the unpacked egg in `DISCOVERYBOT_EGG` has, or why it cannot be run
here; without that variable, which spiders the project in the working directory has.

It imports other people's code, so it runs in a process of its own, within limits. Its answer is a `Listing` as JSON
on stdout, kept apart from what that code prints. It takes no arguments, because every user can see those of a
process.
"""

from __future__ import annotations

import ast
import dis
import gc
import inspect
import json
import locale
import os
import re
import resource
import signal
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from traceback import FrameSummary, StackSummary, extract_tb, walk_tb
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from crawler.node import project_files, projects
from crawler.node.missing_modules import OF_PYTHON_2, advice_on_missing, inside, undeclared
from gateway.contract.param_formats import RESERVED_PARAMS
from gateway.contract.reasons import Reason
from gateway.contract.requirements import OLDEST_SCRAPY
from gateway.contract.variable_names import refused_variable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy import Spider
    from scrapy.settings import BaseSettings

#: Valid names of parameters. The gateway takes none that begins with `_`.
_PARAMETER = re.compile(r"[^\W_][\w .:-]{0,99}")
#: Characters of a description.
_LONGEST_LINE = 1000
#: Maximum number of seconds of this process. Scrapyd gives up earlier; the limit is for the case that Scrapyd was
#: killed.
_LONGEST = 90
#: Variable with the most bytes of memory that this process can have; without it there is no limit.
MEMORY = "DISCOVERYBOT_LISTING_MEMORY"


def list_own() -> dict[str, Any]:
    """The `Listing` (see `crawler/node/spider_lists.py`) of our own project."""
    return {"spiders": spider_infos(projects.OWN_PROJECT, None)}


def list_egg(path: Path, project: str, version: str | None) -> dict[str, Any]:
    """As `list_own`, for an unpacked egg."""
    try:
        projects.leave_working_directory()
        projects.check_names(projects.read_egg(path))
        return {"spiders": _import_spiders(projects.activate(path), project, version)}
    except projects.EggError as error:
        return {"problem": str(error), "reason": error.reason, **_what_may_help(error.__cause__, path)}


def _what_may_help(error: BaseException | None, path: Path) -> dict[str, Any]:
    """Which package might be missing, or whether other versions might help, if the egg could not be imported."""
    if not isinstance(error, ImportError | AttributeError | TypeError):
        return {}
    egg = projects.read_egg(path)
    if _is_of_python_2(error, egg):
        return {}
    missing = (getattr(error, "name", None) or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if not missing or missing in egg.packages or find_spec(missing) is not None:
        return {"is_outdated": missing not in egg.packages}
    return {"undeclared": undeclared(missing, egg)}


def _import_spiders(egg: projects.UnpackedEgg, project: str, version: str | None) -> list[dict[str, Any]]:
    os.environ.__class__ = _without_variables(f"{egg.path}{os.sep}")
    try:
        infos = spider_infos(project, version)
    except BaseException as error:
        reason = Reason.PYTHON_MISSING if _is_of_python_2(error, egg) else Reason.NOT_IMPORTABLE
        raise projects.EggError(reason, f"it cannot be imported: {_explain(error, egg)}") from error
    if not infos:
        raise projects.EggError(
            Reason.SPIDER_MISSING,
            "it has no spiders: look at SPIDER_MODULES in its settings, and at packages in its setup.py",
        )
    return infos


def _without_variables(egg: str) -> type[Any]:
    """A class for `os.environ` in which missing variables are empty for the egg's own code. A listing gets none of
    the project's variables, and a module that reads `os.environ["API_KEY"]` should not fail because of that.
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


def _explain(error: BaseException, egg: projects.UnpackedEgg) -> str:
    """The error in one line, as at the end of a traceback, with the place in the egg and with advice."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ImportError):  # the path of a library is of no use
        text = text.removesuffix(f" ({error.path})")
    line = " ".join(text.split())[:500]
    places = [(frame.filename, frame.lineno) for frame in _frames(error)]
    if isinstance(error, SyntaxError):  # its file was not run, so it is in no frame
        places.append((error.filename or "", error.lineno))
    own = [(name[len(str(egg.path)) + 1 :], number) for name, number in places if name.startswith(str(egg.path))]
    where = f" ({own[-1][0]}, line {own[-1][1]})" if own else ""
    return f"{line}{where}{_advice(error, egg)}"


def _frames(error: BaseException) -> Iterable[FrameSummary]:
    return extract_tb(error.__traceback__) if error.__traceback__ else StackSummary()


_ADVICE_ON_SYNTAX = (
    f". This is Python {sys.version_info.major}.{sys.version_info.minor}: if it is written for another, say which "
    "in the project's .python-version"
)


#: Messages of Python 3 about syntax of Python 2.
_SYNTAX_OF_PYTHON_2 = re.compile(
    "Missing parentheses in call to|multiple exception types must be parenthesized|leading zeros in decimal|"
    "invalid decimal literal|inconsistent use of tabs"
)
#: Built-in names of Python 2 that Python 3 does not have.
_NAMES_OF_PYTHON_2 = frozenset({"basestring", "raw_input", "reduce", "reload", "unichr", "unicode", "xrange"})
_ADVICE_ON_PYTHON_2 = ". It is written for Python 2{}, and crawls need Python 3: convert it (2to3 does most of that)"


def _is_of_python_2(error: BaseException, egg: projects.UnpackedEgg) -> bool:
    """Whether the egg cannot be imported because it is written for Python 2. An import may fail before such code is
    reached.
    """
    if isinstance(error, ImportError):
        missing = error.name or ""
        # Python 2 finds modules beside the one that imports them
        is_doubtful = missing.startswith("scrapy.") or inside(missing, egg) is not None
        return missing in OF_PYTHON_2 or (is_doubtful and _code_of_python_2(egg) is not None)
    if isinstance(error, NameError):
        return error.name in _NAMES_OF_PYTHON_2
    return isinstance(error, SyntaxError) and bool(_SYNTAX_OF_PYTHON_2.search(error.msg))


def _code_of_python_2(egg: projects.UnpackedEgg) -> str | None:
    """A place in the package of the settings that only Python 2 can run."""
    for path in sorted((egg.path / egg.settings_module.partition(".")[0]).rglob("*.py")):
        try:
            ast.parse(path.read_bytes())
        except SyntaxError as error:
            if _SYNTAX_OF_PYTHON_2.search(error.msg):
                return f"{path.relative_to(egg.path)}, line {error.lineno}"
        except (OSError, ValueError):
            continue
    return None


_ADVICE_ON_PYTHON = ". This Python does not have it: import what has taken its place, or ask for a release that does"


def _advice(error: BaseException, egg: projects.UnpackedEgg) -> str:
    if not isinstance(error, ImportError) or not error.name:
        return _advice_on_code(error, egg)
    missing = error.name.partition(".")[0]
    if missing in egg.packages:
        is_gone = isinstance(error, ModuleNotFoundError)
        return ". The egg lacks it: look at packages in its setup.py" if is_gone else ""
    if missing not in OF_PYTHON_2 and _is_of_python_2(error, egg):
        return _ADVICE_ON_PYTHON_2.format(f" ({_code_of_python_2(egg)})")
    if find_spec(missing) is None:
        return advice_on_missing(missing, egg)
    return _advice_on_version(error, missing, egg)


def _advice_on_code(error: BaseException, egg: projects.UnpackedEgg) -> str:
    if _is_of_python_2(error, egg):
        return _ADVICE_ON_PYTHON_2.format("")
    if isinstance(error, SyntaxError):
        return _ADVICE_ON_SYNTAX
    return _advice_on_lists(egg) if isinstance(error, ValueError) else _advice_on_resources(error, egg)


def _advice_on_version(error: ImportError, missing: str, egg: projects.UnpackedEgg) -> str:
    with suppress(PackageNotFoundError):
        return f". {_wrong_version(error, missing, egg)}"
    return _ADVICE_ON_PYTHON if missing in sys.stdlib_module_names else ""


def _advice_on_lists(egg: projects.UnpackedEgg) -> str:
    """What to do about a setting that is a list. Scrapy's own message does not name the setting."""
    for name in _COMPONENTS:
        if isinstance(getattr(sys.modules.get(egg.settings_module), name, None), list | tuple):
            return (
                f". {name} is a list, which Scrapy does not take any more: write a dictionary, with an order for "
                "each ({'shop.pipelines.Save': 300})"
            )
    return ""


def _advice_on_resources(error: BaseException, egg: projects.UnpackedEgg) -> str:
    if isinstance(error, MemoryError) and (limit := _memory_limit()):
        return f". It may take {limit >> 20} MiB (CRAWL_MEMORY_LIMIT of the node): create no large objects at import"
    if (
        isinstance(error, FileNotFoundError)
        and isinstance(name := error.filename, str)
        and not Path(name).is_absolute()
    ):
        if project_files.place_in(egg.path, name):
            return f". Nothing runs in the project's own folder: use it as Path(__file__).parent / {name!r}"
        return ". It is not in the egg: if it is the project's own, have git track it, beside scrapy.cfg"
    return _advice_on_locale(error) if isinstance(error, locale.Error) else ""


def _advice_on_locale(error: BaseException) -> str:
    """What to do about a locale that the machine lacks. The error does not name it; the call that raised it does."""
    while isinstance(error.__context__, locale.Error):
        error = error.__context__  # the first that was tried: another one may be of another system
    calls = [frame for frame, _ in walk_tb(error.__traceback__) if frame.f_code is locale.setlocale.__code__]
    name = calls[-1].f_locals.get("locale") if calls else None
    if not isinstance(name, str):
        return ""
    return (
        f". This machine has no locale {name!r}: install it on the node (Debian: the package locales-all), and "
        "deploy again"
    )


#: Modules of Scrapy that had moved before the oldest one that a node can run.
_MOVED = frozenset(
    {"command", "conf", "contrib", "contrib_exp", "dupefilter", "linkextractor", "log", "project", "spider"}
)


def _is_long_gone(name: str) -> bool:
    """Whether no Scrapy that a node can run has this name: what the oldest one lacks, only an older one had."""
    oldest = Version(version("scrapy")).release[:2] == OLDEST_SCRAPY.release
    return oldest or name.partition(".")[2].partition(".")[0] in _MOVED


def _wrong_version(error: ImportError, library: str, egg: projects.UnpackedEgg) -> str:
    """What to do about a library that lacks what is imported from it. Raises `PackageNotFoundError`."""
    modules = [frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in walk_tb(error.__traceback__)]
    importer = next((module for module in reversed(modules) if module != "importlib"), "")
    if importer == __package__.partition(".")[0]:
        return f"This node cannot work with {library} {version(library)}: name another in the project's requirements"
    if library == "scrapy" and _is_long_gone(error.name or ""):
        return (
            f"No Scrapy has it that a node can run ({OLDEST_SCRAPY} or later): import what has taken its place, "
            "which Scrapy's release notes name"
        )
    if importer in egg.packages or importer == library or not (owners := packages_distributions().get(importer)):
        return (
            f"It is not in {library} {version(library)}: name the version that has it in the project's requirements, "
            "or deploy it as of its time (`discoverybot deploy --as-of DATE`)"
        )
    return (
        f"{owners[0]} {version(owners[0])} needs another version of {library} than {version(library)}: "
        "name versions of both that fit in the project's requirements, or deploy it as of its time (`discoverybot "
        "deploy --as-of DATE`)"
    )


# --- what can be found out about a spider without running it


def spider_infos(project: str, version: str | None) -> list[dict[str, Any]]:
    """The spiders (`SpiderInfo`) of the project that is on `sys.path`, loaded with its own settings and add-ons.

    Raises anything that its modules raise.
    """
    from crawler import private_names, scrapy_versions  # noqa: PLC0415 - Scrapy takes a second to import
    from crawler.project_guard import project_settings  # noqa: PLC0415 - a bad egg is refused before that

    scrapy_versions.refuse_older()
    private_names.refuse_without_private_names()

    settings = project_settings()
    scrapy_versions.load_pre_crawler_settings(settings)
    loader = scrapy_versions.get_spider_loader(settings)
    spiders = {str(name): loader.load(name) for name in sorted(loader.list())}
    if project == projects.OWN_PROJECT:
        return [
            {"project": project, "version": version, "name": name, **_of_ours(spider)}
            for name, spider in spiders.items()
        ]
    _import_components(settings, [*spiders.values()])
    return [
        # by the name under which the loader finds each spider
        {
            "project": project,
            "version": version,
            "name": name,
            **_of_an_egg(spider),
            "timeout": _timeout(settings, spider),
        }
        for name, spider in spiders.items()
    ]


#: Settings that name classes which every crawl loads before its first request.
_COMPONENTS = ("ITEM_PIPELINES", "DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "EXTENSIONS")


def _import_components(settings: BaseSettings, spiders: list[type[Spider]]) -> None:
    """Import the classes that the settings name: one that cannot be imported would end every crawl. Settings that a
    spider can replace are left out.

    Raises anything that their modules raise.
    """
    from scrapy import Spider  # noqa: PLC0415 - it is imported already
    from scrapy.exceptions import NotConfigured  # noqa: PLC0415 - as above
    from scrapy.utils.misc import load_object  # noqa: PLC0415 - as above

    scrapys = Spider.update_settings.__func__  # type: ignore[attr-defined]  # mypy takes it for a function
    if any(getattr(spider.update_settings, "__func__", None) is not scrapys for spider in spiders):
        return
    chosen = {name for spider in spiders for name in spider.custom_settings or ()}
    for setting in (name for name in _COMPONENTS if name not in chosen):
        for component, order in settings.getdict(setting).items():
            if order is not None and isinstance(component, str):
                with suppress(NotConfigured):
                    load_object(component)


def _of_ours(spider: type[Spider]) -> dict[str, Any]:
    params = getattr(spider, "Params", None)
    return {
        "description": _first_line(inspect.getdoc(spider)),
        "params_schema": params.model_json_schema() if params else None,
    }


def _of_an_egg(spider: type[Spider]) -> dict[str, Any]:
    return {
        "description": _first_line(spider.__doc__),  # not inherited: Scrapy's docstring says nothing of this spider
        "params_schema": _declared_params(spider),
        "allowed_domains": _domains(getattr(spider, "allowed_domains", None)),
        "own_start": _has_own_start(spider),
        "module": spider.__module__,
        "needs_urls": _needs_urls(spider),
        "arguments": _named_arguments(spider),
    }


def _timeout(settings: BaseSettings, spider: type[Spider]) -> int | None:
    """Seconds after which the spider ends by itself; `None` if it has no such limit, or none that is a number."""
    said = (spider.custom_settings or {}).get("CLOSESPIDER_TIMEOUT", settings["CLOSESPIDER_TIMEOUT"])
    with suppress(TypeError, ValueError, OverflowError):
        seconds = int(float(said))
        return seconds if 0 < seconds < 10**9 else None
    return None


def _first_line(text: str | None) -> str:
    return next(iter(inspect.cleandoc(text or "").splitlines()), "")[:_LONGEST_LINE]


def _domains(domains: Any) -> list[str]:
    """The spider's domains; none if they are only known once the spider is built."""
    if isinstance(domains, str):
        return [domains]
    return [str(one) for one in domains if one] if isinstance(domains, list | tuple | set | frozenset) else []


def _declared_params(spider: type[Spider]) -> dict[str, Any] | None:
    """The parameters that the spider declares with scrapy-spider-metadata (`class Shop(Args[Params], Spider)`), as
    JSON Schema, without those that Scrapy or the platform sets. `None` if it declares none that JSON can express.
    """
    if not callable(schema_of := getattr(spider, "get_param_schema", None)):
        return None
    try:
        schema: dict[str, Any] = json.loads(json.dumps(schema_of()))
        properties = {name: one for name, one in schema.get("properties", {}).items() if _may_be_given(name)}
        required = [name for name in schema.get("required", ()) if name in properties]
    except Exception:  # noqa: BLE001 - an error in the model shows when the spider is built
        return None
    return {**schema, "properties": properties, "required": required}


def _named_arguments(spider: type[Spider]) -> list[str]:
    from crawler.node.arguments import named_arguments  # noqa: PLC0415 - Scrapy is there by now

    return sorted(name for name in named_arguments(spider) if _PARAMETER.fullmatch(name))


def _may_be_given(name: str) -> bool:
    return name not in RESERVED_PARAMS and _PARAMETER.fullmatch(name) is not None


def _needs_urls(spider: type[Spider]) -> bool:
    """Whether a crawl of the spider must name start URLs. It is a guess; the spider's `needs_urls` overrules it."""
    from crawler.scrapy_versions import own_start  # noqa: PLC0415 - it is there by now

    said = getattr(spider, "needs_urls", None)
    if isinstance(said, bool):
        return said
    # statically, because a property counts as start URLs, too
    if inspect.getattr_static(spider, "start_urls", None) or any(map(_makes_start_urls, _constructors(spider))):
        return False
    own = own_start(spider)
    if own is not None and any("url" in name for name in (_declared_params(spider) or {}).get("properties", ())):
        return False  # a parameter of its own (`url`, `urls_file`) says where it starts
    # a start method that reads `self.start_urls` expects the crawl to name them
    return own is None or _touches(own, "LOAD_ATTR")


def _has_own_start(spider: type[Spider]) -> bool:
    """Whether the spider itself decides where it starts, in a start method or in its constructor."""
    from crawler.scrapy_versions import own_start  # noqa: PLC0415 - it is there by now

    if own_start(spider):
        return True
    return any(_touches(constructor, "STORE_ATTR") for constructor in _constructors(spider))


def _constructors(spider: type[Spider]) -> list[Any]:
    """The constructors of the spider and its base classes, without Scrapy's own."""
    from scrapy import Spider  # noqa: PLC0415 - it is there by now

    return [vars(cls)["__init__"] for cls in spider.__mro__ if cls is not Spider and "__init__" in vars(cls)]


def _makes_start_urls(constructor: Any) -> bool:
    """Whether the constructor sets start URLs that do not come from its arguments."""
    code = getattr(inspect.unwrap(constructor), "__code__", None)
    is_given = code is not None and "start_urls" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return _touches(constructor, "STORE_ATTR") and not (is_given or _touches(constructor, "LOAD_ATTR"))


def _touches(function: Any, operation: str) -> bool:
    """Whether it reads (`LOAD_ATTR`) or sets (`STORE_ATTR`) `self.start_urls`."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is not None and any(
        step.opname == operation and step.argval == "start_urls" for step in dis.get_instructions(code)
    )


def _memory_limit() -> int:
    return int(os.environ.get(MEMORY, "0"))


def _limit_memory() -> None:
    """Have the kernel limit this process's memory. Scrapyd watches the processes that the project's code starts."""
    if limit := _memory_limit():
        with suppress(OSError, ValueError):  # the limit is lower already, or the system has no such limit
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def main() -> None:
    if os.getsid(0) != os.getpid():
        os.setsid()  # everything that the project starts can be ended with the session
    signal.alarm(_LONGEST)
    _limit_memory()
    # imports leave no garbage, and collecting it would add a tenth to their time
    gc.set_threshold(100_000)
    answer = os.dup(1)
    os.dup2(2, 1)
    version = os.environ.get("SCRAPYD_EGG_VERSION")
    egg = os.environ.pop(projects.EGG, None)
    listing = list_egg(Path(egg), os.environ["SCRAPY_PROJECT"], version) if egg else list_own()
    with os.fdopen(answer, "wb") as stdout:
        stdout.write(json.dumps(listing).encode())
    sys.stderr.flush()
    os._exit(0)  # not `sys.exit`: threads of the project would keep the process


if __name__ == "__main__":
    main()
