from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gateway.cli.projects import EggError, build_egg, project_of_egg, read_project

FILES = {
    "scrapy.cfg": "[settings]\ndefault = shop.settings\n\n[deploy:live]\nproject = Shop\n",
    "setup.py": "raise SystemExit('is never run')",
    "rules.py": "PRICE = '.price'",
    "shop/__init__.py": "",
    "shop/settings.py": "BOT_NAME = 'shop'",
    "shop/spiders/__init__.py": "",
    "shop/spiders/offers.py": "from rules import PRICE",
    "shop/words/list.txt": "one\ntwo\n",
    "shop/__pycache__/settings.cpython-311.pyc": "",
    "shop/.cache/page": "",
    "tests/__init__.py": "",
    "notes/plan.md": "",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_an_egg_has_the_packages_and_what_is_in_them(folder: Path, tmp_path: Path) -> None:
    egg = tmp_path / "x.egg"
    build_egg(read_project(folder), "1", egg)
    with zipfile.ZipFile(egg) as archive:
        assert archive.namelist() == [
            "rules.py",
            "shop/__init__.py",
            "shop/settings.py",
            "shop/spiders/__init__.py",
            "shop/spiders/offers.py",
            "shop/words/list.txt",
            "EGG-INFO/PKG-INFO",
            "EGG-INFO/entry_points.txt",
        ]
    assert project_of_egg(egg) == "shop"


def test_an_egg_can_be_imported_and_says_where_its_settings_are(folder: Path, tmp_path: Path) -> None:
    egg = tmp_path / "x.egg"
    build_egg(read_project(folder), "1.4", egg)
    code = (
        "import sys, importlib.metadata as m; sys.path.insert(0, sys.argv[1]);"
        "print(m.entry_points(group='scrapy')['settings'].load().BOT_NAME);"
        "import shop.spiders.offers as o; print(o.PRICE)"
    )
    done = subprocess.run([sys.executable, "-c", code, egg], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "shop\n.price\n", done.stderr


def test_the_name_is_what_scrapy_cfg_deploys_it_as_or_the_package(folder: Path) -> None:
    assert read_project(folder).name == "Shop"
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n[deploy]\nurl = http://x/\n")
    assert read_project(folder).name == "shop"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "it has no scrapy.cfg"),
        ("[deploy]\n", "does not say where the settings are"),
        ("[settings]\ndefault = shop.setings\n", "there is no such module"),
        ("settings\n", "cannot be read"),
    ],
)
def test_what_is_no_project_is_refused_with_what_is_missing(folder: Path, config: str | None, words: str) -> None:
    (folder / "scrapy.cfg").unlink()
    if config is not None:
        (folder / "scrapy.cfg").write_text(config)
    with pytest.raises(EggError, match=words):
        read_project(folder)


def test_a_folder_without_scrapy_cfg_is_told_what_else_there_is(folder: Path) -> None:
    with pytest.raises(EggError, match="there is no such folder"):
        read_project(folder / "gone")
    with pytest.raises(EggError, match=r"has some in it; deploy one of them: project$"):
        read_project(folder.parent)
    (folder / "scrapy.cfg").unlink()
    with pytest.raises(EggError, match=r"default = shop\.settings$"):
        read_project(folder)


def test_what_is_no_egg_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.egg").write_text("x")
    with zipfile.ZipFile(tmp_path / "empty.egg", "w"):
        pass
    with pytest.raises(EggError, match="not a ZIP file"):
        project_of_egg(tmp_path / "text.egg")
    with pytest.raises(EggError, match="does not say where its settings are"):
        project_of_egg(tmp_path / "empty.egg")
