from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest


def said_by(code: str) -> str:
    """What a process prints that has the former names. It is one of its own: they change modules of Python."""
    code = f"import sys\nfrom crawler.node import former_names\nformer_names.bring_back()\n{dedent(code)}"
    command = [sys.executable, "-W", "default", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("former", "today"),
    [
        ("collections.MutableMapping", "collections.abc.MutableMapping"),
        ("collections.Iterable", "collections.abc.Iterable"),
        ("base64.encodestring", "base64.encodebytes"),
        ("scrapy.utils.url.canonicalize_url", "w3lib.url.canonicalize_url"),
        ("scrapy.utils.python.unicode_to_str", "scrapy.utils.python.to_bytes"),
        ("scrapy.spiders.BaseSpider", "scrapy.Spider"),
    ],
)
def test_a_former_name_is_found_as_what_it_stood_for_and_warns(former: str, today: str) -> None:
    module, _, name = former.rpartition(".")
    said = said_by(f"""
        import base64, collections.abc, scrapy, w3lib.url
        from {module} import {name}
        print({name} is {today})
    """)
    assert said.startswith("True")
    assert f"DeprecationWarning: {former} is there no more" in said


def test_other_names_are_missing_as_before() -> None:
    said = said_by("""
        import collections
        print(hasattr(collections, "unheard"), collections.OrderedDict.__name__)
        try:
            from collections import Unheard
        except ImportError as error:
            print(error.name, error)
    """)
    assert said.startswith("False OrderedDict\ncollections cannot import name 'Unheard' from 'collections'")


@pytest.mark.parametrize(
    ("former", "today"),
    [
        ("scrapy.contrib.spiders.CrawlSpider", "scrapy.spiders.CrawlSpider"),
        ("scrapy.contrib.spiders.crawl.CrawlSpider", "scrapy.spiders.CrawlSpider"),
        ("scrapy.contrib.linkextractors.sgml.SgmlLinkExtractor", "scrapy.linkextractors.LinkExtractor"),
        ("scrapy.contrib.closespider.CloseSpider", "scrapy.extensions.closespider.CloseSpider"),
        ("scrapy.dupefilter.RFPDupeFilter", "scrapy.dupefilters.RFPDupeFilter"),
        ("scrapy.loader.processors.MapCompose", "itemloaders.processors.MapCompose"),
        ("scrapy.spider.BaseSpider", "scrapy.Spider"),
        ("scrapy.xlib.pydispatch.dispatcher.connect", "pydispatch.dispatcher.connect"),
    ],
)
def test_a_module_that_scrapy_has_moved_is_found_at_its_former_place(former: str, today: str) -> None:
    module, _, name = former.rpartition(".")
    said = said_by(f"""
        import scrapy, scrapy.extensions.closespider
        from {module} import {name}
        from scrapy.utils.misc import load_object
        print({name} is load_object("{today}") is load_object("{former}"))
    """)
    assert said.startswith("True")
    assert f"DeprecationWarning: {module} is not there: " in said


def test_what_is_called_in_another_way_today_is_called_as_before() -> None:
    said = said_by("""
        import os
        os.environ["SCRAPY_SETTINGS_MODULE"] = "chosen"
        sys.modules["chosen"] = type(sys)("chosen")
        sys.modules["chosen"].BOT_NAME = "a bot"
        from scrapy import Request, Spider, log
        from scrapy.conf import settings
        from scrapy.utils.reqser import request_from_dict, request_to_dict

        class Shop(Spider):
            name = "shop"

        spider = Shop()
        again = request_from_dict(request_to_dict(Request("data:,x", spider.parse), spider), spider)
        print(settings["BOT_NAME"], again.url, again.callback == spider.parse)
        log.msg("said %(what)s", level=log.ERROR, what="twice")
        log.err(ValueError("a reason"), "why")
    """)
    assert said.startswith("a bot data:,x True")
    assert "said twice\nwhy\nValueError: a reason" in said


def test_pymysql_stands_in_for_mysqldb_where_only_that_is_installed(tmp_path: Path) -> None:
    (tmp_path / "pymysql").mkdir()
    (tmp_path / "pymysql/__init__.py").write_text("from pymysql import cursors\nthreadsafety = 1\n")
    (tmp_path / "pymysql/cursors.py").write_text("class DictCursor: ...\n")
    said = said_by(f"""
        try:
            import MySQLdb
        except ModuleNotFoundError as error:
            print(error)
        sys.path.append({str(tmp_path)!r})
        import MySQLdb
        import MySQLdb.cursors
        import pymysql
        print(MySQLdb.threadsafety, MySQLdb.cursors.DictCursor is pymysql.cursors.DictCursor)
    """)
    assert said.startswith("No module named 'MySQLdb'\n1 True\n")


@pytest.mark.parametrize("name", ["scrapy.contrib.djangoitem", "scrapy.contrib.spiders.unheard", "scrapy.unheard"])
def test_other_modules_are_missing_as_before(name: str) -> None:
    said = said_by(f"""
        try:
            import {name}
        except ModuleNotFoundError as error:
            print(error.name, error)
    """)
    assert said.startswith(f"{name} No module named '{name}'\n")


def test_what_nobody_asks_for_changes_no_module() -> None:
    said = said_by("""
        import scrapy
        print([name for name in sys.modules if name.startswith(("scrapy.contrib", "scrapy.xlib"))])
        print(hasattr(scrapy, "contrib"))
    """)
    assert said == "[]\nFalse\n"
