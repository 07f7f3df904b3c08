"""The settings that projects cannot decide on a node. They decide all others."""

from __future__ import annotations

import json
import logging
import os
import posixpath
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any, Self, TypeVar

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings, Settings, SettingsAttribute, get_settings_priority
from scrapy.utils.project import get_project_settings

from crawler.net.egress import EgressResolver, is_allowed_handler
from crawler.scrapy_versions import ASYNCIO_REACTOR
from crawler.setting_names import ATTEMPT_DIR, NODE_LOG_LEVEL

if TYPE_CHECKING:
    from collections.abc import Mapping


logger = logging.getLogger(__name__)

_FORCED = "cmdline"
#: Schemes that need no check here: `data` connects to nothing, and the add-on sets the handlers of the others.
_KNOWN_SCHEMES = frozenset({"http", "https", "data", "file", "ftp", "s3"})
#: Settings of a project that have no effect here. DiscoveryBot's own add-on sets most of them.
OVERRULED = frozenset(
    {
        *(
            "DOWNLOADER",
            "TWISTED_DNS_RESOLVER",
            "DNS_RESOLVER",
            "TWISTED_REACTOR",
            "TWISTED_REACTOR_ENABLED",
            "HTTPPROXY_ENABLED",
        ),
        *("REMOTE_CONTROL_ENABLED", "TELNETCONSOLE_ENABLED", "JOBDIR"),
        *("LOG_FILE", "LOG_ENABLED", "LOG_FORMAT", "LOG_DATEFORMAT", "LOG_LEVEL", "LOG_INSTALL_ROOT_HANDLER"),
    }
)


class ProjectGuard:
    """Add-on that the runner puts between a project's own add-ons and DiscoveryBot's. It sets the log and the event
    loop as the node needs them, whatever the project says. Most projects have no such settings.
    """

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        _hold(settings)

    def update_settings(self, settings: BaseSettings) -> None:
        _hold(settings)
        _close_schemes(settings)
        if settings.get(ATTEMPT_DIR):
            _keep_files(settings)


def choices(settings: BaseSettings) -> dict[str, Any]:
    """The project's own values of settings that the node overrules."""
    return {name: settings[name] for name in OVERRULED if settings.getpriority(name)}


def _hold(settings: BaseSettings) -> None:
    # the egress rule, the report and a graceful stop are written for asyncio
    _force(settings, "TWISTED_REACTOR", ASYNCIO_REACTOR)
    if settings.getpriority("DNS_RESOLVER"):
        # the deprecated name would take precedence
        _force(settings, "DNS_RESOLVER", EgressResolver)
    if settings.get(ATTEMPT_DIR):
        if settings.getpriority("LOG_LEVEL"):
            _force(settings, "LOG_LEVEL", _talkative(settings["LOG_LEVEL"], settings[NODE_LOG_LEVEL]))
        _force(settings, "LOG_INSTALL_ROOT_HANDLER", True)  # noqa: FBT003 - a setting's value
        # with the state of a killed attempt, the next one would end at once without results
        _force(settings, "JOBDIR", None)


def _talkative(level: Any, node_level: str) -> str | int:
    """The project's log level, unless it would hide messages that the node must log."""
    ours = logging.getLevelNamesMapping()[node_level]
    theirs = level if isinstance(level, int) else logging.getLevelNamesMapping().get(str(level).upper(), ours)
    level = min(ours, theirs)
    name: str = logging.getLevelName(level)
    return level if name not in logging.getLevelNamesMapping() else name


def _close_schemes(settings: BaseSettings) -> None:
    """Remove handlers for unknown schemes, because their connections cannot be checked."""
    handlers = settings.getdict("DOWNLOAD_HANDLERS")
    others = [scheme for scheme, handler in handlers.items() if handler and scheme not in _KNOWN_SCHEMES]
    for scheme in sorted(scheme for scheme in others if not is_allowed_handler(settings, handlers[scheme])):
        logger.warning("%s is not used for %s: its connections cannot be checked", handlers[scheme], scheme)
        handlers[scheme] = None
    settings.set("DOWNLOAD_HANDLERS", handlers, priority=_FORCED)


# --- files that a project writes on the node's disk: they belong in the attempt's folder, where the spider works

#: Default folders for Scrapy's file pipelines, which do not run without a folder.
_STORES = {"FILES_STORE": "files", "IMAGES_STORE": "images"}


def _keep_files(settings: BaseSettings) -> None:
    for name, default in _STORES.items():
        _force(settings, name, in_folder(settings[name] or default))
    if feeds := settings.getdict("FEEDS"):
        _force(settings, "FEEDS", {in_folder(place): options for place, options in feeds.items()})
    if settings["FEED_URI"]:
        _force(settings, "FEED_URI", in_folder(settings["FEED_URI"]))


def in_folder(place: Any) -> str:
    """`place` moved into the spider's working folder, as if that were the root: `/data/images` becomes `data/images`,
    and `../images` becomes `images`. A place that is not a path stays.
    """
    text = str(place)
    scheme, colon, rest = text.partition(":")
    if not text.startswith("/") and colon and scheme.isidentifier():
        if scheme.lower() != "file":
            return text
        text = rest
    path = posixpath.normpath(f"/{text}").lstrip("/")
    if path != text:
        logger.info("%s is %s in this attempt's files", place, path or ".")
    return path or "."


def _force(settings: BaseSettings, name: str, value: Any) -> None:
    settings.set(name, value, priority=_FORCED)


# --- a project's settings as this node runs it: with our add-ons, however the project sets its own

#: They come after all of the project's add-ons, in this order, so that the last one decides.
OUR_ADDONS = ("crawler.project_guard.ProjectGuard", "crawler.addon.DiscoveryBot")
_FIRST_ORDER = 500


class ProjectSettings(Settings):
    """Settings in which our add-ons come after all others, whether the project, a spider's `custom_settings` or `-s`
    sets `ADDONS`. Nothing ranks above the command line, so nothing overrules our add-ons.
    """

    @classmethod
    def of(cls, settings: BaseSettings) -> Self:
        """A copy of `settings`. They contain Scrapy's defaults, which are not read once more."""
        made = cls.__new__(cls)
        BaseSettings.__init__(made, settings)
        return made

    def set(self, name: str, value: Any, priority: int | str = "project") -> None:
        rank = min(get_settings_priority(priority), SETTINGS_PRIORITIES["cmdline"])
        super().set(name, with_ours(value) if name == "ADDONS" else value, rank)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return _twin(self, memo)


#: Values of these types are shared by copies of settings.
_UNCHANGING = frozenset({str, int, float, bool, type(None), type})


_SettingsT = TypeVar("_SettingsT", bound=BaseSettings)


def _twin(settings: _SettingsT, memo: dict[int, Any]) -> _SettingsT:
    """As `deepcopy` of settings, in a fifth of its time: Scrapy copies them twice for each crawl."""
    twin = memo[id(settings)] = copy(settings)
    twin.attributes = {name: _twin_of_one(one, memo) for name, one in settings.attributes.items()}
    return twin


def _twin_of_one(attribute: SettingsAttribute, memo: dict[int, Any]) -> SettingsAttribute:
    value = attribute.value
    if type(value) is BaseSettings and id(value) not in memo:
        value = _twin(value, memo)
    elif type(value) not in _UNCHANGING:
        value = deepcopy(value, memo)
    # without the constructor, which derives a priority from some values
    twin = SettingsAttribute.__new__(SettingsAttribute)
    twin.value, twin.priority = value, attribute.priority
    return twin


#: Environment variables on which a project's settings depend.
_NAMING = ("SCRAPY_PROJECT", "SCRAPY_SETTINGS_MODULE", "SCRAPY_CHECK", "SCRAPY_PYTHON_SHELL")
#: What `keep_settings` has kept, by the values on which it depends.
_kept: dict[tuple[str | None, ...], ProjectSettings] = {}


def project_settings() -> ProjectSettings:
    """The settings of the project that `SCRAPY_PROJECT` and `SCRAPY_SETTINGS_MODULE` name."""
    kept = _kept.get(_named())
    if kept is None:
        return ProjectSettings.of(get_project_settings())
    if module := kept["SETTINGS_MODULE"]:
        os.environ["SCRAPY_SETTINGS_MODULE"] = module
    return kept.copy()


def keep_settings() -> ProjectSettings:
    """As `project_settings`; also keeps the result for processes that are forked from this one."""
    named = _named()
    settings = _kept[named] = project_settings()
    return settings


def _named() -> tuple[str | None, ...]:
    return os.getcwd(), *map(os.environ.get, _NAMING)  # noqa: PTH109 - a string, as the others


def with_ours(addons: str | Mapping[Any, Any] | None) -> dict[Any, Any]:
    """`addons` (a dictionary, or JSON of one) with ours at the end, even if it tries to order or disable them."""
    every = json.loads(addons) if isinstance(addons, str) else dict(addons or {})
    theirs = {addon: order for addon, order in every.items() if _path(addon) not in OUR_ADDONS}
    last = max([_FIRST_ORDER, *(order for order in theirs.values() if isinstance(order, int | float))])
    return {**theirs, **{addon: last + place for place, addon in enumerate(OUR_ADDONS, 1)}}


def _path(addon: Any) -> Any:
    return f"{addon.__module__}.{addon.__qualname__}" if isinstance(addon, type) else addon
