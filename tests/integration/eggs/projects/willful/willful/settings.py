"""Wants to have it its own way, in everything that a node cannot leave to it, and in much that it can."""

from __future__ import annotations

import json

BOT_NAME = "willful"
SPIDER_MODULES = ["willful.spiders"]
# as from a command line, and ours switched off
ADDONS = json.dumps({"willful.addons.Doors": 10**9, "crawler.addon.DiscoveryBot": None})
REMOTE_CONTROL_ENABLED = True
TELNETCONSOLE_ENABLED = True
EXTENSIONS = {"willful.extensions.OwnControl": 1, "scrapy.extensions.telnet.TelnetConsole": 1}
ITEM_PIPELINES = {"willful.pipelines.Stamp": 300}
FEEDS = {"out/items.jsonl": {"format": "jsonlines"}, "items.csv": {"format": "csv"}}
SPIDER_LOADER_CLASS = "willful.loader.Loader"
LOG_FILE = "elsewhere.log"
LOG_LEVEL = "ERROR"
LOG_FORMAT = "%(message)s"
JOBDIR = "job"
TWISTED_REACTOR = "twisted.internet.selectreactor.SelectReactor"
DOWNLOADER = "willful.no_such_module.Downloader"
DOWNLOAD_HANDLERS = {
    "https": "scrapy.core.downloader.handlers.h2.H2DownloadHandler",
    "gopher": "willful.no_such_module.Handler",
}
