"""A project of somebody else's, which switches on all that a node must not have."""

BOT_NAME = "shop"
SPIDER_MODULES = ["shop.spiders", "shop.tricks"]
REMOTE_CONTROL_ENABLED = True
TELNETCONSOLE_ENABLED = True
EXTENSIONS = {"scrapy.extensions.remote_control.RemoteControl": 1}
LOG_FORMAT = "%(message)s"
LOG_FILE = "elsewhere.log"
DOWNLOAD_HANDLERS = {"file": "scrapy.core.downloader.handlers.file.FileDownloadHandler"}
RETRY_TIMES = 0
TWISTED_REACTOR_ENABLED = True
