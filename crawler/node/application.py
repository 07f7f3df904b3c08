"""Puts a crawl node together: Scrapyd with our parts plugged in. scrapyd.conf names it, so plain `scrapyd` starts it.

This is the only place in Scrapyd's process that reads settings. Plugged-in parts get them from their `NodeConfig`.
"""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

from functools import partial
from typing import Any

import scrapyd.app
from scrapyd.config import Config
from scrapyd.interfaces import IEnvironment
from twisted.application.service import IServiceCollection
from twisted.web.server import Site

from crawler.node.accounts import Accounts, open_accounts
from crawler.node.config import NodeConfig, NodeConfigError, NodeEnvironment
from crawler.node.spider_lists import SpiderLists
from crawler.node.webroot import NodeRequest
from gateway.errors import SettingsError
from gateway.process import hide_process
from gateway.settings import NodeSettings, ScrapydSettings


def application(config: Config) -> Any:
    """The Twisted application. Raises `NodeConfigError` for a setting that is wrong or a password that is missing."""
    hide_process()
    settings = load_settings()
    node_config = NodeConfig(config, settings)
    for folder in (settings.outbox, settings.node_dir / "logs"):
        folder.mkdir(parents=True, exist_ok=True)
    app = scrapyd.app.application(node_config)
    # Scrapyd has no configuration options for these; the launcher looks them up when it needs them
    app.setComponent(IEnvironment, NodeEnvironment(node_config))
    app.setComponent(Accounts, _open_accounts(settings))
    SpiderLists(node_config, app).setServiceParent(app)
    services: Any = IServiceCollection(app)
    requests: Any = partial(NodeRequest, folder=settings.node_dir)
    for service in services:
        for site in (part for part in getattr(service, "args", ()) if isinstance(part, Site)):
            site.requestFactory = requests
    return app


def load_settings() -> ScrapydSettings:
    """The node's settings. Raises `NodeConfigError` that names what is wrong."""
    try:
        return ScrapydSettings.load()
    except SettingsError as error:
        raise NodeConfigError(str(error)) from None


def _open_accounts(settings: NodeSettings) -> Accounts:
    try:
        return open_accounts(settings)
    except OSError as error:
        raise NodeConfigError(f"NODE_UIDS: its users cannot reach {settings.outbox}: {error.strerror}") from None
