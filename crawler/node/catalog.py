"""`python -m crawler.node.catalog`: write down which spiders this node can run, for the tailer to publish."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import orjson
from scrapy.settings import Settings
from scrapy.spiderloader import get_spider_loader

from crawler.node.project_names import OWN_PROJECT
from gateway.crash_points import state_change
from gateway.domain.node_files import CATALOG, SpiderInfo, write_atomically
from gateway.settings import NodeSettings

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy import Spider


def spider_infos() -> list[SpiderInfo]:
    """The spiders of our own project; those of eggs are listed when they are deployed."""
    settings = Settings()
    settings.setmodule("crawler.settings")
    loader = get_spider_loader(settings)
    return [_info(loader.load(name)) for name in sorted(loader.list())]


def _info(spider: type[Spider]) -> SpiderInfo:
    params = getattr(spider, "Params", None)
    lines = (inspect.getdoc(spider) or "").splitlines()
    return SpiderInfo(
        project=OWN_PROJECT,
        name=spider.name,
        description=lines[0] if lines else "",
        params_schema=params.model_json_schema() if params else None,
    )


@state_change("node.catalog")
def write_catalog(node_dir: Path) -> None:
    node_dir.mkdir(parents=True, exist_ok=True)
    infos = [info.model_dump(mode="json") for info in spider_infos()]
    write_atomically(node_dir / CATALOG, orjson.dumps(infos, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    write_catalog(NodeSettings.load().node_dir)
