"""`docs/reference/settings.md` says what `gateway/settings.py` does."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from unit.house.sources import ROOT

from gateway.settings import OUR_PREFIXES, OUTSIDE_SETTINGS, NodeSettings, Settings

PAGE = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
#: Where the default is found out at run time, the page says how.
FOUND_OUT = {"NODE_NAME": "the host's name", "NODE_URL": "`http://127.0.0.1:<SCRAPYD_PORT>`"}
#: Read by tests, so no setting; and what is not ours at all and only let pass.
TESTS_ONLY = {"MONGO_REPLICA_SET_URI", "MONGO_TEST_URI"}
NODE_JS = {name for name in OUTSIDE_SETTINGS if name.startswith("NODE_")}


class Row(NamedTuple):
    name: str
    second: str


def _table(heading: str) -> list[Row]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [Row(*row) for row in re.findall(r"^\| `([A-Z_]+)` \| (.*?) \|", section, flags=re.MULTILINE)]


def _default(name: str, field: FieldInfo) -> str:
    default = field.default.get_secret_value() if isinstance(field.default, SecretStr) else field.default
    if isinstance(default, tuple):  # as it is written in a variable
        default = ",".join(default)
    return FOUND_OUT.get(name) or ("—" if default in (None, "") else f"`{default}`")


def _rows(fields: dict[str, FieldInfo]) -> list[Row]:
    return [Row(name.upper(), _default(name.upper(), field)) for name, field in fields.items()]


def test_what_every_process_reads_is_all_there() -> None:
    assert _table("Read by every process") == _rows(NodeSettings.model_fields)


def test_what_the_platform_reads_is_all_there() -> None:
    own = {name: field for name, field in Settings.model_fields.items() if name not in NodeSettings.model_fields}
    of_scrapyd = {name: field for name, field in own.items() if name.startswith("project_")}
    others = {name: field for name, field in own.items() if name not in of_scrapyd}
    assert _table("Read by the gateway, workers, beats, tailers and the CLI") == _rows(others)
    assert _table("Read by a node's Scrapyd, and by none of its spiders") == _rows(of_scrapyd)


def test_what_is_read_elsewhere_is_all_there() -> None:
    assert {row.name for row in _table("Read elsewhere")} == (OUTSIDE_SETTINGS - NODE_JS) | TESTS_ONLY


@pytest.mark.parametrize("prefix", OUR_PREFIXES)
def test_the_page_names_the_prefixes_that_are_ours(prefix: str) -> None:
    assert f"`{prefix}`" in PAGE.partition("\n## ")[0]
