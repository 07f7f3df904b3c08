from __future__ import annotations

from scrapy.extensions.remote_control import RemoteControl


class OwnControl(RemoteControl):
    """Scrapy's, under another name."""
