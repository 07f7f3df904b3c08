"""A crawl node: Scrapyd, put together our way. Named in scrapyd.conf, so plain `scrapyd` starts it."""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

from typing import Any

import scrapyd.app
from scrapyd.config import Config
from scrapyd.interfaces import IEnvironment

from crawler.node.accounts import Accounts, open_accounts
from crawler.node.config import NodeConfigError, NodeEnvironment, apply, load_settings, require_password
from crawler.node.spider_lists import SpiderLists
from gateway.process import hide_process
from gateway.settings import NodeSettings


def application(config: Config) -> Any:
    """The Twisted application. Raises `NodeConfigError` for a setting that is wrong or a password that is missing."""
    hide_process()
    settings = load_settings()
    require_password(config)
    apply(config, settings)
    for folder in (settings.outbox, settings.node_dir / "logs"):
        folder.mkdir(parents=True, exist_ok=True)
    app = scrapyd.app.application(config)
    # Scrapyd names no option for these; the launcher looks them up when it needs them
    app.setComponent(IEnvironment, NodeEnvironment(config))
    app.setComponent(Accounts, _open_accounts(settings))
    SpiderLists(config, app).setServiceParent(app)
    return app


def _open_accounts(settings: NodeSettings) -> Accounts:
    try:
        return open_accounts(settings)
    except OSError as error:
        raise NodeConfigError(f"NODE_UIDS: its users cannot reach {settings.outbox}: {error.strerror}") from None
