"""What a project that somebody else wrote may not decide while it runs on a node; everything else it may."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy.settings.default_settings import TWISTED_REACTOR

from crawler.net.egress import EgressResolver
from crawler.setting_names import ATTEMPT_DIR
from gateway.settings import NodeSettings

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

_FORCED = "cmdline"
#: Schemes whose handlers talk to nobody (`data:`), or are ours.
_KNOWN_SCHEMES = frozenset({"http", "https", "data", "file", "ftp", "s3"})
#: Settings of a project that have no effect here. Another add-on's business, most of them.
OVERRULED = frozenset(
    {
        *("DOWNLOADER", "TWISTED_DNS_RESOLVER", "TWISTED_REACTOR", "TWISTED_REACTOR_ENABLED", "HTTPPROXY_ENABLED"),
        *("REMOTE_CONTROL_ENABLED", "TELNETCONSOLE_ENABLED", "JOBDIR"),
        *("LOG_FILE", "LOG_ENABLED", "LOG_FORMAT", "LOG_DATEFORMAT", "LOG_LEVEL", "LOG_INSTALL_ROOT_HANDLER"),
    }
)


class Guest:
    """Add-on, put in by the runner between a project's own and DiscoveryBot's: keeps the log and the loop as the node
    needs them. Most projects set none of it.
    """

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        _hold(settings)

    def update_settings(self, settings: BaseSettings) -> None:
        _hold(settings)
        _close_schemes(settings)


def choices(settings: BaseSettings) -> dict[str, Any]:
    """What a project has decided of that which it cannot."""
    return {name: settings[name] for name in OVERRULED if settings.getpriority(name)}


def _hold(settings: BaseSettings) -> None:
    # the egress rule, the report and a graceful stop are written for asyncio
    _force(settings, "TWISTED_REACTOR", TWISTED_REACTOR)
    if settings.getpriority("DNS_RESOLVER"):
        # the deprecated name would win over the other
        _force(settings, "DNS_RESOLVER", EgressResolver)
    if settings.get(ATTEMPT_DIR):
        if settings.getpriority("LOG_LEVEL"):
            _force(settings, "LOG_LEVEL", _talkative(settings["LOG_LEVEL"]))
        _force(settings, "LOG_INSTALL_ROOT_HANDLER", True)  # noqa: FBT003 - a setting's value
        # what a killed attempt left in it would end the next one at once, with nothing
        _force(settings, "JOBDIR", None)


def _talkative(level: Any) -> str | int:
    """The project's level, unless it would hide what the node is asked to show."""
    ours = logging.getLevelNamesMapping()[NodeSettings.load().log_level.upper()]
    theirs = level if isinstance(level, int) else logging.getLevelNamesMapping().get(str(level).upper(), ours)
    level = min(ours, theirs)
    name: str = logging.getLevelName(level)
    return level if name not in logging.getLevelNamesMapping() else name


def _close_schemes(settings: BaseSettings) -> None:
    """Nothing is known of how a handler for another scheme connects."""
    handlers = settings.getdict("DOWNLOAD_HANDLERS")
    for scheme in sorted(scheme for scheme, handler in handlers.items() if handler and scheme not in _KNOWN_SCHEMES):
        logger.warning("%s is not used for %s: its connections cannot be checked", handlers[scheme], scheme)
        handlers[scheme] = None
    settings.set("DOWNLOAD_HANDLERS", handlers, priority=_FORCED)


def _force(settings: BaseSettings, name: str, value: Any) -> None:
    settings.set(name, value, priority=_FORCED)
