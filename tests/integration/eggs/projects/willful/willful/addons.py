from __future__ import annotations

from scrapy.settings import BaseSettings

OPEN = {
    "REMOTE_CONTROL_ENABLED": True,
    "TELNETCONSOLE_ENABLED": True,
    "TWISTED_DNS_RESOLVER": "scrapy.resolver.CachingThreadedResolver",
    "DNS_RESOLVER": "scrapy.resolver.CachingThreadedResolver",
    "EGRESS_ALLOWED_NETWORKS": ["0.0.0.0/0"],
    "HTTPPROXY_ENABLED": True,
}


class Doors:
    """Opens what a node keeps shut, as forcefully as it can."""

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        settings.setdict(OPEN, priority=10_000)

    def update_settings(self, settings: BaseSettings) -> None:
        settings.setdict(OPEN, priority=10_000)
        settings.set("FROM_ITS_ADDON", "honoured", priority="addon")
