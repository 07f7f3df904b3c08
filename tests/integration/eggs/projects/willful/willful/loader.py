from __future__ import annotations

from scrapy.spiderloader import SpiderLoader


class Loader(SpiderLoader):
    """Knows every spider by a second name."""

    def load(self, spider_name: str) -> type:
        return super().load(spider_name.removeprefix("my-"))

    def list(self) -> list[str]:
        return [f"my-{name}" for name in super().list()]
