"""A crawl node: Scrapyd, put together our way. Named in scrapyd.conf, so plain `scrapyd` starts it."""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

from typing import Any

import scrapyd.app
from scrapyd.config import Config
from scrapyd.interfaces import IEnvironment

from crawler.node.config import apply, load_settings, require_password
from crawler.node.environment import NodeEnvironment
from crawler.node.spider_lists import SpiderLists
from gateway.secrecy import hide_process


def application(config: Config) -> Any:
    """The Twisted application. Raises `NodeConfigError` for a setting that is wrong or a password that is missing."""
    hide_process()
    settings = load_settings()
    require_password(config)
    apply(config, settings)
    for folder in (settings.outbox, settings.node_dir / "logs"):
        folder.mkdir(parents=True, exist_ok=True)
    app = scrapyd.app.application(config)
    # Scrapyd names no option for it; the launcher looks it up when it needs it
    app.setComponent(IEnvironment, NodeEnvironment(config))
    SpiderLists(config, app).setServiceParent(app)
    return app
