"""A lenient node adds well-known packages that a project does not declare, and takes what there was in its time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from eggs import egg, source
from forms import in_full
from sites.server import Site
from wheels import index_of, write_source, write_wheel, write_wheels_of_node

from gateway.contract.requirements import CHANGED

from .conftest import EggNode, new_node

SPIDER = """
{imports}
import scrapy

class Teller(scrapy.Spider):
    name = "teller"

    async def start(self):
        yield {{"colour": NAME}}
"""
#: Our packages have these names in the processes of eggs. An egg may change what they say.
FORGED = "from crawler.node import missing_modules as mm\nmm._WELL_KNOWN = {'unheard': 'unheard'}\nimport unheard"
#: It says of another package each time that this cannot be built.
ENDLESS = """
import sys, uuid
for module in [one for one in sys.modules.values() if "_what_may_help" in vars(one)]:
    module._what_may_help = lambda *_: {"unbuildable": uuid.uuid4().hex}
import unheard
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("files")
    write_wheels_of_node(folder)
    write_wheel(folder, "unheard", "1.0", {"unheard.py": ""})
    write_wheel(folder, "rotated", "1.0", {"rotating_proxies.py": "raise OSError"})
    write_wheel(
        folder, "scrapy_rotating_proxies", "0.6", {"rotating_proxies.py": "import xlwt\nNAME = 'red'"}, ("six",)
    )
    write_wheel(folder, "six", "1.0", {"six.py": ""})
    write_wheel(folder, "xlwt", "1.0", {"xlwt.py": ""})
    write_wheel(folder, "furl", "1.0", {"furl.py": ""}, ("nowhere",))
    write_wheel(folder, "colour", "1.0", {"colour.py": "NAME = 'blue'"})
    write_wheel(folder, "compiler", "1.0", {"compiler.py": "raise OSError('no such compiler')"})
    write_source(folder, "number", "1.0", {"number.py": "NAME = 1"}, builds_with="compiler")
    write_wheel(folder, "number", "1.1", {"number.py": "NAME = 1.1"})
    write_source(folder, "letter", "1.0", {"letter.py": "NAME = 'a'"}, builds_with="compiler")
    write_source(folder, "mysqlclient", "2.2", {"MySQLdb.py": "NAME = 'in C'"}, builds_with="compiler")
    write_wheel(folder, "pymysql", "1.1", {"pymysql.py": "NAME = 'in Python'"})
    days = {write_wheel(folder, "colour", "2.0", {"colour.py": "COLOUR = 'blue'"}).name: "2025-03-01"}
    with Site(index_of(folder, days)) as site:
        yield site


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory, index: Site) -> Iterator[EggNode]:
    yield from _node(tmp_path_factory, index, PROJECT_LENIENT="true", PROJECT_BUILD_SOURCES="true")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, index: Site) -> Iterator[EggNode]:
    yield from _node(tmp_path_factory, index)


def _node(tmp_path_factory: pytest.TempPathFactory, index: Site, **settings: str) -> Iterator[EggNode]:
    node = new_node(tmp_path_factory.mktemp("home"), PROJECT_INDEX_URL=f"{index.url}/simple", **settings)
    try:
        yield node.start()
    finally:
        node.clean_up()


def deployed(node: EggNode, project: str, imports: str, **files: str) -> dict[str, Any]:
    return node.deploy(project, "1.0", egg({**source("shop", spiders=SPIDER.format(imports=imports)), **files}))


def dependencies(node: EggNode, project: str) -> dict[str, Any]:
    answer: dict[str, Any] = node.client.get(
        "/dependencies.json", params={"project": project, "version": "1.0"}
    ).json()
    return answer


def test_what_is_imported_and_not_declared_is_added_if_it_is_well_known(lenient: EggNode) -> None:
    answer = deployed(lenient, "undeclared", "from rotating_proxies import NAME")
    assert answer["status"] == "ok", answer
    told = dependencies(lenient, "undeclared")
    assert (told["state"], told["added"], told["as_of"]) == ("ready", ["scrapy-rotating-proxies", "xlwt"], "")
    assert "scrapy-rotating-proxies==0.6" in told["packages"]
    crawl = lenient.ended(lenient.run("teller", project="undeclared"))
    assert crawl.items == [{"colour": "red"}], crawl.log


@in_full("what is not added is refused here")
def test_what_was_added_is_known_after_a_restart(lenient: EggNode) -> None:
    deployed(lenient, "kept", "from rotating_proxies import NAME")
    lenient.end()
    lenient.start()
    assert dependencies(lenient, "kept")["added"] == ["scrapy-rotating-proxies", "xlwt"]


@pytest.mark.parametrize(
    ("imports", "why"),
    [
        ("import unheard", "Add unheard to the project's requirements"),
        (FORGED, "Add unheard to the project's requirements"),
        (ENDLESS, "Add unheard to the project's requirements"),
        ("import furl", "with furl, which it does not declare: "),
    ],
)
def test_nothing_else_is_added(lenient: EggNode, imports: str, why: str) -> None:
    answer = deployed(lenient, "refused", f"NAME = 'red'\n{imports}")
    assert (answer["status"], why in answer["message"]) == ("error", True), answer
    assert "refused" not in lenient.client.get("/listprojects.json").json()["projects"]


def test_a_pin_that_cannot_be_built_is_raised(lenient: EggNode) -> None:
    answer = deployed(lenient, "pinned", "from number import NAME", **{"requirements.txt": "number==1.0\nsix==1.0\n"})
    assert answer["status"] == "ok", answer
    told = dependencies(lenient, "pinned")
    assert (told["raised"], {"number==1.1", "six==1.0"} <= {*told["packages"]}) == (["number"], True)


@in_full("what is not added is refused here")
def test_what_has_no_later_version_that_can_be_installed_is_refused(lenient: EggNode) -> None:
    answer = deployed(lenient, "refused", "from letter import NAME", **{"requirements.txt": "letter==1.0\n"})
    assert answer["reason"] == "build_failed"
    assert "letter==1.0 cannot be built on this node" in answer["message"]


def test_what_cannot_be_built_is_left_out_if_no_spider_needs_it(lenient: EggNode) -> None:
    answer = deployed(lenient, "unbuilt", "from number import NAME", **{"requirements.txt": "letter\nnumber==1.1\n"})
    assert answer["status"] == "ok", answer
    told = dependencies(lenient, "unbuilt")
    assert (told["left_out"], "number==1.1" in told["packages"]) == (["letter"], True)


def test_what_cannot_be_built_is_replaced_by_what_has_the_same_interface(lenient: EggNode) -> None:
    answer = deployed(lenient, "replaced", "from MySQLdb import NAME")
    assert answer["status"] == "ok", answer
    told = dependencies(lenient, "replaced")
    assert (told["added"], told["left_out"]) == (["mysqlclient", "PyMySQL"], ["mysqlclient"])
    crawl = lenient.ended(lenient.run("teller", project="replaced"))
    assert crawl.items == [{"colour": "in Python"}], crawl.log


def test_a_pin_with_a_hash_is_not_raised(lenient: EggNode) -> None:
    pin = f"number==1.0 --hash=sha256:{'0' * 64}\n"
    answer = deployed(lenient, "refused", "from number import NAME", **{"requirements.txt": pin})
    assert answer["reason"] == "build_failed", answer


def old(day: str) -> dict[str, str]:
    return {CHANGED: f"{day}\n", "requirements.txt": "colour\n"}


def test_an_old_project_gets_what_there_was_when_it_was_last_changed(lenient: EggNode) -> None:
    answer = deployed(lenient, "old", "from colour import NAME", **old("2024-10-22"))
    assert answer["status"] == "ok", answer
    told = dependencies(lenient, "old")
    assert (told["added"], told["as_of"], "colour==1.0" in told["packages"]) == ([], "2024-10-22", True)
    crawl = lenient.ended(lenient.run("teller", project="old"))
    assert crawl.items == [{"colour": "blue"}], crawl.log


@pytest.mark.parametrize(
    ("imports", "files", "why"),
    [
        # it was changed since
        ("from colour import NAME", old("2025-11-01"), "not in colour 2.0"),
        (
            "from colour import SHADE",
            old("2024-10-22"),
            "With what there was on 2024-10-22 it cannot be run either",
        ),
        ("from colour import NAME", old("yesterday"), "not in colour 2.0"),
        (
            "from colour import NAME",
            {**old("2024-10-22"), "requirements.txt": "# exclude-newer: 2025-06-01\ncolour\n"},
            "not in colour 2.0",
        ),
    ],
)
def test_no_other_day_is_taken(lenient: EggNode, imports: str, files: dict[str, str], why: str) -> None:
    answer = deployed(lenient, "refused", imports, **files)
    assert (answer["status"], why in answer["message"]) == ("error", True), answer


def test_another_node_only_says_what_may_help(strict: EggNode) -> None:
    undeclared = deployed(strict, "refused", "from rotating_proxies import NAME")["message"]
    assert "Add scrapy-rotating-proxies to the project's requirements" in undeclared
    of_another_time = deployed(strict, "refused", "from colour import NAME", **old("2024-10-22"))["message"]
    assert "(`discoverybot deploy --as-of 2024-10-22`)" in of_another_time
    assert dependencies(strict, "refused")["state"] == "ready"
