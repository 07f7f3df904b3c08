"""A project's settings as this node runs it: with our add-ons in, wherever and however it sets its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scrapy.settings import SETTINGS_PRIORITIES, Settings, get_settings_priority
from scrapy.utils.project import get_project_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

#: After all of the project's, in this order: the last one has the last word.
OUR_ADDONS = ("crawler.project_guard.Guest", "crawler.addon.DiscoveryBot")
_FIRST_ORDER = 500


class ProjectSettings(Settings):
    """Whatever `ADDONS` is set to (by the project, a spider's `custom_settings`, `-s`), ours come after it; and
    nothing ranks above the command line, which is where our add-ons set what nobody may change.
    """

    def set(self, name: str, value: Any, priority: int | str = "project") -> None:
        rank = min(get_settings_priority(priority), SETTINGS_PRIORITIES["cmdline"])
        super().set(name, with_ours(value) if name == "ADDONS" else value, rank)


def project_settings() -> ProjectSettings:
    """The settings of the project that `SCRAPY_PROJECT` and `SCRAPY_SETTINGS_MODULE` name."""
    settings = ProjectSettings()
    settings.update(get_project_settings())
    return settings


def with_ours(addons: str | Mapping[Any, Any] | None) -> dict[Any, Any]:
    """`addons` (a dictionary, or JSON of one) with ours at the end, even if it tries to order or disable them."""
    every = json.loads(addons) if isinstance(addons, str) else dict(addons or {})
    theirs = {addon: order for addon, order in every.items() if _path(addon) not in OUR_ADDONS}
    last = max([_FIRST_ORDER, *(order for order in theirs.values() if isinstance(order, int | float))])
    return {**theirs, **{addon: last + place for place, addon in enumerate(OUR_ADDONS, 1)}}


def _path(addon: Any) -> Any:
    return f"{addon.__module__}.{addon.__qualname__}" if isinstance(addon, type) else addon
