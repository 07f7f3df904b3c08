from __future__ import annotations

import subprocess
import sys
from textwrap import dedent


def said_by(code: str) -> str:
    """What a process prints that builds components as before. It is one of its own: this changes Scrapy's modules."""
    code = f"""
import asyncio
from scrapy.core.spidermw import SpiderMiddlewareManager
from scrapy.pipelines import ItemPipelineManager
from scrapy.utils.test import get_crawler
from crawler.node import former_ways
former_ways.bring_back()
{dedent(code)}"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_component_with_from_settings_alone_is_built_with_it() -> None:
    said = said_by("""
        class Old:
            def __init__(self, name):
                print("named", name)

            @classmethod
            def from_settings(cls, settings):
                return cls(settings["BOT_NAME"])

        class New(Old):
            @classmethod
            def from_crawler(cls, crawler):
                return cls("anew")

        class Plain:
            def __init__(self):
                print("plain")

        ItemPipelineManager.from_crawler(
            get_crawler(settings_dict={"BOT_NAME": "a bot", "ITEM_PIPELINES": {Old: 1, New: 2, Plain: 3}})
        )
    """)
    assert said.startswith("named a bot\nnamed anew\nplain\n")


OLD = """
class Old:
    def process_spider_output(self, response, result, spider):
        for one in result:
            if one:
                yield response, one, spider

async def yielded(error=None):
    for one in (1, 0, 2):
        yield one
    if error:
        raise error

async def output(error=None):
    async for one in method(response="page", result=yielded(error), spider="shop"):
        print(one)

manager = SpiderMiddlewareManager.from_crawler(get_crawler(settings_dict={"SPIDER_MIDDLEWARES": {Old: 999}}))
(method,) = [one for one in manager.methods["process_spider_output"] if "Old" in str(one)]
print(method in manager._mw_methods_requiring_spider)
"""


def test_a_spider_middleware_that_is_not_asynchronous_works_as_before() -> None:
    said = said_by(f"{OLD}\nasyncio.run(output())\n")
    assert said == "True\n('page', 1, 'shop')\n('page', 2, 'shop')\n"


def test_what_a_callback_yields_before_an_error_reaches_such_a_middleware() -> None:
    said = said_by(f"""{OLD}
try:
    asyncio.run(output(ValueError("a reason")))
except ValueError as error:
    print(error)
""")
    assert said.endswith("('page', 2, 'shop')\na reason\n")


def test_other_spider_middlewares_stay_as_they_are() -> None:
    said = said_by("""
        class New:
            async def process_spider_output(self, response, result):
                async for one in result:
                    yield one

        class Both(New):
            def process_spider_output(self, response, result):
                return result

            async def process_spider_output_async(self, response, result):
                async for one in result:
                    yield one

        for mw in (New(), Both()):
            before = dict(vars(mw))
            former_ways._complete(mw)
            print(vars(mw) == before)
    """)
    assert said == "True\nTrue\n"
