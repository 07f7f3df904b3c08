"""What is found out about a spider without running it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, Field
from scrapy import Request, Spider
from scrapy.settings import Settings
from scrapy.spiders import CrawlSpider, SitemapSpider

from crawler.node.listing import _declared_params, _needs_urls, _timeout


class Plain(Spider):
    name = "plain"


class Listed(Spider):
    name = "listed"
    start_urls: ClassVar = ["https://example.com/"]


class Emptied(Listed):
    start_urls: ClassVar = []


class Computed(Spider):
    @property
    def start_urls(self) -> list[str]:
        return ["https://example.com/"]


class Starts(Spider):
    async def start(self) -> AsyncIterator[Any]:
        yield Request("https://example.com/")


class StartsAsBefore(Spider):
    def start_requests(self) -> Iterator[Any]:
        yield Request("https://example.com/")


class WalksThrough(Spider):
    async def start(self) -> AsyncIterator[Any]:
        for url in self.start_urls:
            yield Request(url, dont_filter=True)


class WalksThroughItsOwn(WalksThrough, Listed):
    pass


class Makes(Spider):
    def __init__(self, category: str = "all", **more: Any) -> None:
        super().__init__(**more)
        self.start_urls = [f"https://example.com/{category}"]


class Splits(Spider):
    def __init__(self, start_urls: str = "", **more: Any) -> None:
        super().__init__(**more)
        self.start_urls = start_urls.split(",")


class Changes(Spider):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.start_urls = [f"{url}?all" for url in self.start_urls]


class SaysThatItNeedsThem(Starts):
    needs_urls = True


class SaysThatItDoesNot(WalksThrough):
    needs_urls = False


class TakesAnother(WalksThrough):
    """As with `Args` of scrapy-spider-metadata."""

    @classmethod
    def get_param_schema(cls) -> dict[str, Any]:
        return {"properties": {"urls_file": {"type": "string"}}}


class TakesWhatSaysNotWhere(WalksThrough):
    @classmethod
    def get_param_schema(cls) -> dict[str, Any]:
        return {"properties": {"pages": {"type": "integer"}, "start_urls": {"type": "array"}}}


@pytest.mark.parametrize(
    ("spider", "needs"),
    [
        (Plain, True),
        (CrawlSpider, True),
        (SitemapSpider, False),
        (Listed, False),
        (Emptied, True),
        (Computed, False),
        (Starts, False),
        (StartsAsBefore, False),
        (WalksThrough, True),
        (WalksThroughItsOwn, False),
        (Makes, False),
        (Splits, True),
        (Changes, True),
        (SaysThatItNeedsThem, True),
        (SaysThatItDoesNot, False),
        (TakesAnother, False),
        (TakesWhatSaysNotWhere, True),
    ],
)
def test_a_crawl_needs_start_urls_unless_the_spider_has_them(spider: type[Spider], *, needs: bool) -> None:
    assert _needs_urls(spider) == needs


class Params(BaseModel):
    pages: int = Field(default=1, ge=1)
    category: str
    start_urls: list[str]


class Declares(Spider):
    """As with `Args` of scrapy-spider-metadata."""

    @classmethod
    def get_param_schema(cls) -> dict[str, Any]:
        return Params.model_json_schema()


class Fails(Spider):
    @classmethod
    def get_param_schema(cls) -> dict[str, Any]:
        raise AssertionError


class NoJson(Spider):
    @classmethod
    def get_param_schema(cls) -> dict[str, Any]:
        return {"properties": {"pages": {"default": object()}}}


def test_declared_parameters_are_told_but_for_those_that_the_platform_gives() -> None:
    schema = _declared_params(Declares)
    assert schema is not None
    assert set(schema["properties"]) == {"pages", "category"}
    assert schema["required"] == ["category"]


class Odd(Spider):
    """It writes its schema by hand."""

    @classmethod
    def get_param_schema(cls) -> dict[str, Any]:
        odd = ["__proto__", "__proto__.headers.Authorization", "_own", "", "a\u202eb", "x" * 101]
        names = [*odd, "shop.page-1", "größe"]
        return {"properties": {name: {"type": "string"} for name in names}, "required": ["__proto__"]}


def test_what_no_parameter_can_be_called_is_not_told() -> None:
    schema = _declared_params(Odd)
    assert schema is not None
    assert (set(schema["properties"]), schema["required"]) == ({"shop.page-1", "größe"}, [])


@pytest.mark.parametrize("spider", [Plain, Fails, NoJson])
def test_what_is_not_declared_or_not_in_json_is_free_form(spider: type[Spider]) -> None:
    assert _declared_params(spider) is None


def listed(folder: Path, files: dict[str, str], **environ: str) -> dict[str, Any]:
    """What the module says of an unpacked egg."""
    metadata = {
        "EGG-INFO/entry_points.txt": "[scrapy]\nsettings = shop.settings\n",
        "EGG-INFO/PKG-INFO": "Name: shop\n",
    }
    for name, text in {**metadata, "shop/__init__.py": "", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "crawler.node.listing"]
    environ = {**os.environ, "SCRAPY_PROJECT": "shop", "DISCOVERYBOT_EGG": str(folder), **environ}
    answer: dict[str, Any] = json.loads(subprocess.run(command, env=environ, capture_output=True, check=True).stdout)
    return answer


SETTINGS = "SPIDER_MODULES = ['shop.spiders']\n"


def test_a_library_that_needs_another_version_of_a_third_is_named(tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    (note := installed / "old_splash-0.9.dist-info").mkdir(parents=True)
    (note / "METADATA").write_text("Metadata-Version: 2.1\nName: old-splash\nVersion: 0.9\n")
    (note / "RECORD").write_text("old_splash.py,,\n")
    (installed / "old_splash.py").write_text("from scrapy.utils.url import gone_long_ago\n")
    files = {"shop/settings.py": SETTINGS, "shop/spiders.py": "import old_splash\n"}
    problem = listed(tmp_path / "egg", files, PYTHONPATH=str(installed))["problem"]
    assert "(shop/spiders.py, line 1). old-splash 0.9 needs another version of scrapy than 2." in problem


@pytest.mark.parametrize(
    ("spiders", "more", "reason"),
    [
        ("import urlparse\n", "", "python_missing"),
        ("print 'x'\n", "", "python_missing"),
        ("reload(sys)\n", "", "python_missing"),
        ("from scrapy.project import crawler\n", "print 'x'\n", "python_missing"),
        ("from scrapy.project import crawler\n", "print('x')\n", "not_importable"),
        ("import beside\n", "print 'x'\n", "python_missing"),
        ("import beside\n", "print('x')\n", "not_importable"),
        ("import gone_long_ago\n", "print 'x'\n", "not_importable"),
        ("open('words.txt')\n", "print 'x'\n", "not_importable"),
    ],
)
def test_what_only_python_2_can_run_lacks_a_python(tmp_path: Path, spiders: str, more: str, reason: str) -> None:
    answer = listed(tmp_path, {"shop/settings.py": SETTINGS, "shop/spiders.py": spiders, "shop/beside.py": more})
    assert answer["reason"] == reason, answer
    assert ("Python 2" in answer["problem"]) == (reason == "python_missing")
    assert not answer.get("is_outdated") or reason == "not_importable"


OPENS = "import io, pathlib\nprint({how}, end='')\nfrom scrapy import Spider\nclass Shop(Spider): name = 'shop'\n"


@pytest.mark.parametrize(
    "how",
    [
        "open('words.txt').read()",
        "open('./data/../words.txt', 'rb', 0).read()",
        "io.open(b'words.txt', mode='rt', encoding='utf8').read()",
        "pathlib.Path('words.txt').read_text()",
        "open(pathlib.Path.cwd() / 'words.txt').read()",
    ],
)
def test_a_file_of_the_project_is_read_by_its_name(tmp_path: Path, how: str) -> None:
    files = {"shop/settings.py": SETTINGS, "shop/spiders.py": OPENS.format(how=how), "words.txt": "one"}
    assert [one["name"] for one in listed(tmp_path, files)["spiders"]] == ["shop"]


@pytest.mark.parametrize(
    ("how", "advice"),
    [
        ("open('words.txt', 'r+')", "use it as Path(__file__).parent / 'words.txt'"),
        ("pathlib.Path('words.txt').stat()", "use it as Path(__file__).parent / 'words.txt'"),
        ("open('other.txt')", "It is not in the egg: if it is the project's own, have git track it"),
        ("open('../outside.txt')", "It is not in the egg"),
        ("open('')", "It is not in the egg"),
        ("open('/no/such/words.txt')", "(shop/spiders.py, line 2)"),
    ],
)
def test_of_other_files_it_is_said_where_they_have_to_be(tmp_path: Path, how: str, advice: str) -> None:
    files = {"shop/settings.py": SETTINGS, "shop/spiders.py": OPENS.format(how=how), "words.txt": "one"}
    (tmp_path / "outside.txt").write_text("two")
    problem = listed(tmp_path / "egg", files)["problem"]
    assert "FileNotFoundError" in problem
    assert advice in problem


def test_a_locale_that_the_machine_lacks_is_named(tmp_path: Path) -> None:
    spiders = "import locale\nlocale.setlocale(locale.LC_TIME, ('xx_XX', 'UTF-8'))\n"
    problem = listed(tmp_path, {"shop/settings.py": SETTINGS, "shop/spiders.py": spiders})["problem"]
    assert "(shop/spiders.py, line 2). This machine has no locale 'xx_XX.UTF-8': install it on the node" in problem


def test_of_several_locales_the_first_is_named(tmp_path: Path) -> None:
    tried = "    locale.setlocale(locale.LC_ALL, {!r})\n"
    spiders = f"import locale\ntry:\n{tried.format('xx_XX.UTF-8')}except locale.Error:\n{tried.format('Xish')}"
    problem = listed(tmp_path, {"shop/settings.py": SETTINGS, "shop/spiders.py": spiders})["problem"]
    assert "This machine has no locale 'xx_XX.UTF-8'" in problem


def test_a_component_that_no_spider_loads_may_be_missing(tmp_path: Path) -> None:
    spider = (
        "import scrapy\n\nclass Own(scrapy.Spider):\n    name = 'own'\n    custom_settings = {'ITEM_PIPELINES': {}}\n"
    )
    settings = f"{SETTINGS}ITEM_PIPELINES = {{'gone.Pipeline': 300}}\nEXTENSIONS = {{'gone.Extension': None}}\n"
    answer = listed(tmp_path, {"shop/settings.py": settings, "shop/spiders.py": spider})
    assert (answer.get("problem"), [one["name"] for one in answer["spiders"]]) == (None, ["own"])


@pytest.mark.parametrize(
    ("of_project", "of_spider", "seconds"),
    [
        (0, None, None),
        (7200, None, 7200),
        ("7200.5", None, 7200),
        (7200, {"CLOSESPIDER_TIMEOUT": 60}, 60),
        (7200, {"CLOSESPIDER_TIMEOUT": 0}, None),
        (7200, {"CLOSESPIDER_TIMEOUT": "an hour"}, None),
        (10**30, None, None),
        (float("inf"), None, None),
    ],
)
def test_a_spider_says_when_it_ends_by_itself(of_project: object, of_spider: Any, seconds: int | None) -> None:
    spider = type("Patient", (Spider,), {"custom_settings": of_spider})
    assert _timeout(Settings({"CLOSESPIDER_TIMEOUT": of_project}), spider) == seconds
