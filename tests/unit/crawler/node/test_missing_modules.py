from __future__ import annotations

from pathlib import Path

import pytest

from crawler.node.missing_modules import undeclared
from crawler.node.projects import UnpackedEgg
from gateway.contract.requirements import ELSEWHERE


@pytest.mark.parametrize(
    ("module", "distribution"),
    [
        ("bs4", "beautifulsoup4"),
        ("scrapy_splash", "scrapy-splash"),
        # nobody has said what these are
        ("unheard", None),
        ("google", None),
        ("urllib2", None),
        # a distribution, but no module of it
        ("beautifulsoup4", None),
    ],
)
def test_only_what_is_well_known_is_added(tmp_path: Path, module: str, distribution: str | None) -> None:
    assert undeclared(module, UnpackedEgg(tmp_path, "shop.settings", frozenset())) == distribution


def test_what_is_the_projects_own_is_not_added(tmp_path: Path) -> None:
    (tmp_path / "shop/tools").mkdir(parents=True)
    (tmp_path / "shop/tools/redis.py").touch()
    (tmp_path / ELSEWHERE).parent.mkdir()
    (tmp_path / ELSEWHERE).write_text("requests ../requests\n")
    egg = UnpackedEgg(tmp_path, "shop.settings", frozenset({"shop"}))
    assert [undeclared(module, egg) for module in ("redis", "requests", "six")] == [None, None, "six"]
