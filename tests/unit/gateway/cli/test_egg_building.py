from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from wheels import BACKEND, WHEEL

from gateway.cli.egg_building import Built, build_egg, project_of_egg, read_project
from gateway.cli.requirements import EggBuildError, find_requirements

GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
FILES = {
    "scrapy.cfg": "[settings]\ndefault = shop.settings\n\n[deploy:live]\nproject = Shop\n",
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
    "requirements.txt": "",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture(autouse=True)
def _nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {**GIT, "UV_OFFLINE": "1", "GIT_CEILING_DIRECTORIES": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def built(folder: Path, local: tuple[Path, ...] = ()) -> tuple[dict[str, bytes], Built, list[str]]:
    """The files of its egg, what its wheel says, and what is told."""
    said: list[str] = []
    found = build_egg(read_project(folder), "1", folder.with_name("built.egg"), said.append, local)
    with zipfile.ZipFile(folder.with_name("built.egg")) as egg:
        return {name: egg.read(name) for name in egg.namelist()}, found, said


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def test_an_egg_has_all_that_git_has_and_new_files_but_none_that_git_ignores(folder: Path) -> None:
    git(folder, "init")
    git(folder, "add", ".")
    ignored = {".gitignore": "/dumps\nlocal.csv\n", "dumps/1.csv": "", "local.csv": ""}
    write(folder, {"resources/cities.csv": "Rome\n", "helpers/clean.py": "", "cities.txt": "", **ignored})
    files, _, said = built(folder)
    assert {"resources/cities.csv", "helpers/clean.py", "cities.txt", "shop/words/list.txt", "notes/plan.md"} <= set(
        files
    )
    assert not [name for name in files if name.startswith(("dumps", "local", "tests", ".", "requirements"))]
    assert said == []


def commit(folder: Path, time: str) -> None:
    git(folder, "add", ".")
    user = ("-c", "user.name=ada", "-c", "user.email=ada@example.com")
    command = ["git", *user, "commit", "--message", "change"]
    subprocess.run(
        command, cwd=folder, check=True, capture_output=True, env={**os.environ, "GIT_COMMITTER_DATE": time}
    )


def test_an_egg_says_when_its_code_was_last_changed_unless_it_was_since(folder: Path) -> None:
    git(folder, "init")
    assert "EGG-INFO/changed.txt" not in built(folder)[0]
    commit(folder, "2019-07-19T23:30:00+0200")
    write(folder, {"README.md": "It is archived."})
    commit(folder, "2026-04-08T12:00:00+0200")
    assert built(folder)[0]["EGG-INFO/changed.txt"] == b"2019-07-19\n"
    write(folder, {"requirements.txt": "six"})
    assert "EGG-INFO/changed.txt" not in built(folder)[0]
    commit(folder, "2026-05-09T12:00:00+0200")
    assert built(folder)[0]["EGG-INFO/changed.txt"] == b"2026-05-09\n"


def test_what_is_not_in_the_egg_is_told_where_git_has_nothing(folder: Path) -> None:
    files, _, said = built(folder)
    assert "notes/plan.md" not in files
    assert said == ["not in the egg: notes/ (no packages; `git init` and `git add` what is to be in it)"]


def test_data_beside_scrapy_cfg_is_in_the_egg_where_git_has_nothing(folder: Path, tmp_path: Path) -> None:
    write(folder, {"words.txt": "one", "cities.JSON": "[]", ".env": "KEY=x", ".secret.json": "{}", "page.pdf": ""})
    write(tmp_path, {"key.txt": "x"})
    (folder / "linked.txt").symlink_to(tmp_path / "key.txt")
    files, _, said = built(folder)
    assert {name for name in files if "/" not in name} == {"rules.py", "words.txt", "cities.JSON"}
    assert said[1] == "in the egg, too, because it is data beside scrapy.cfg: cities.JSON, words.txt"


def test_what_is_too_much_to_be_the_projects_own_data_is_not_in_the_egg(folder: Path) -> None:
    write(folder, {f"{number}.json": "{}" for number in range(101)})
    files, _, said = built(folder)
    assert not [name for name in files if name.endswith(".json")]
    assert said[1] == "not in the egg: 101 files of data, 0 MiB (`git init` and `git add` what is to be in it)"


def test_a_link_of_the_repository_is_followed_in_it_and_nowhere_else(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, {"common/tools.py": "", "secret/key.txt": ""})
    (folder / "common").symlink_to("../common")
    (folder / "secret").symlink_to(tmp_path / "secret")
    git(folder, "init")
    git(folder, "add", ".")
    files, _, _ = built(folder)
    assert not any(name.startswith(("common", "secret")) for name in files)
    (folder / "linked").symlink_to("notes")
    assert "linked/plan.md" in built(folder)[0]


SRC = {
    "scrapy.cfg": "[settings]\ndefault = shop.settings\n",
    "src/shop/__init__.py": "",
    "src/shop/settings.py": "",
    "src/shop/words.txt": "one",
}


def test_packages_below_src_are_at_the_top_of_the_egg(tmp_path: Path) -> None:
    write(folder := tmp_path / "project", SRC)
    files, _, _ = built(folder)
    assert {"shop/__init__.py", "shop/settings.py", "shop/words.txt"} < set(files)


def test_an_egg_is_what_the_projects_build_backend_makes_and_what_git_has(tmp_path: Path) -> None:
    """The module `made` is made when it is built."""
    modules = ["lib/shop/__init__.py", "lib/shop/settings.py", "made.py"]
    backend = BACKEND.format(
        name="shop", number="1", modules=modules, needs=("colour>=1", "x ; extra == 'y'"), wheel=WHEEL
    )
    making = "open('made.py', 'w').write('')\nimport os\nos.makedirs('dumps', exist_ok=True)\n"
    write(
        folder := tmp_path / "project",
        {
            "scrapy.cfg": "[settings]\ndefault = lib.shop.settings\n",
            "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
            "backend.py": making + backend,
            "lib/shop/__init__.py": "",
            "lib/shop/settings.py": "",
            "resources/cities.csv": "",
        },
    )
    git(folder, "init")
    git(folder, "add", ".")
    files, found, said = built(folder)
    assert said == []
    assert {"made.py", "lib/shop/settings.py", "resources/cities.csv"} < set(files)
    assert found.needs == ("colour>=1",)
    assert not (folder / "dumps").exists()
    declared = find_requirements(folder, "", *found[:2])
    assert declared is not None
    assert declared.content == b"colour>=1\n"


def test_where_no_wheel_can_be_made_the_egg_has_the_files_and_the_reason_is_told(folder: Path) -> None:
    write(folder, {"pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "x"\nbackend-path = ["."]\n'})
    files, found, said = built(folder)
    assert "shop/settings.py" in files
    assert found == Built()
    assert said[0].startswith("not in the egg: notes/")
    assert said[1].startswith("its build backend made no wheel, so the egg has the files as they are:")
    assert "No module named 'x'" in said[1]


def test_an_egg_names_the_projects_modules_that_it_has_not(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, {"misc/agents.py": "", "project/legacy/old.py": ""})
    listed = built(folder)[0]["EGG-INFO/elsewhere.txt"].decode()
    assert "misc ../misc\n" in listed
    assert "legacy legacy\n" in listed
    assert "shop" not in listed


def test_what_is_imported_from_elsewhere_in_the_repository_is_in_the_egg(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazy = "def agents():\n    from misc import agents\n    import json, unused_name\n"
    more = {"misc/agents.py": "import words", "misc/data.txt": "", "words.py": "", "others.py": "", "json.py": ""}
    write(tmp_path, {**more, "project/shop/pipelines.py": lazy})
    assert "misc/agents.py" not in built(folder)[0], "in no repository, what lies above may be anybody's"
    git(tmp_path, "init")
    monkeypatch.delenv("GIT_CEILING_DIRECTORIES")
    files, _, said = built(folder)
    assert {"misc/agents.py", "misc/data.txt", "words.py"} < set(files)
    assert not {"others.py", "json.py"} & set(files)
    assert said == [f"in the egg, too, because it is imported: ../{name}" for name in ("misc", "words.py")]
    assert files["EGG-INFO/elsewhere.txt"].decode().splitlines()[:2] == ["json ../json.py", "others ../others.py"]


def test_what_the_requirements_name_of_this_machine_is_in_the_egg(folder: Path, tmp_path: Path) -> None:
    """What is built as its backend builds it, and what has none as it is; and what they need in their turn."""
    backend = BACKEND.format(name="core", number="1", modules=["core/__init__.py"], needs=("colour>=1",), wheel=WHEEL)
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    needs = '[tool.poetry.dependencies]\npaint = "^2"\nplain = {path = "../plain"}\n'
    write(tmp_path, {"core/pyproject.toml": project + needs, "core/backend.py": backend, "core/core/__init__.py": ""})
    write(tmp_path, {"plain/plain/__init__.py": "", "plain/tests/__init__.py": ""})
    lines = "-e .\n-e ../core[x]  # ours\n../core\na==1\n-e git+https://x.com/b@v1#egg=b\n"
    lines += "git+https://x.com/c#egg=c\nhttps://x.com/1.0/d_e-1.0-py3-none-any.whl\n"
    lines += "built @ file:///croot/built\ngone @ ./gone\n"
    (folder / "requirements.txt").write_text(lines)
    found = find_requirements(folder)
    assert found is not None
    wheel = b"https://x.com/1.0/d_e-1.0-py3-none-any.whl"
    urls = b"b @ git+https://x.com/b@v1\nc @ git+https://x.com/c\nd_e @ %s\n" % wheel
    assert found.content == b"a==1\n" + urls + b"built\ngone @ ./gone\npaint<3,>=2\n"
    assert found.local == (tmp_path / "core", tmp_path / "plain")
    files, said, told = built(folder, found.local)
    assert {"core/__init__.py", "plain/__init__.py"} < set(files)
    assert not [name for name in files if name.startswith("tests")]
    assert said.needs_of_local == ("colour>=1",)
    assert [line.rpartition("/")[2] for line in told if "required" in line] == ["core", "plain"]


def test_an_egg_has_the_packages_and_what_is_in_them(folder: Path) -> None:
    egg = folder.with_name("built.egg")
    built(folder)
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
            "EGG-INFO/elsewhere.txt",
        ]
    assert project_of_egg(egg) == "shop"


def test_an_egg_can_be_imported_and_says_where_its_settings_are(folder: Path, tmp_path: Path) -> None:
    egg = tmp_path / "x.egg"
    build_egg(read_project(folder), "1.4", egg, print)
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


def test_the_settings_are_those_that_were_chosen(folder: Path) -> None:
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\nlive = shop.live.settings\n")
    assert read_project(folder, "live").settings == "shop.live.settings"
    with pytest.raises(
        EggBuildError, match=r"no settings 'other': name one that it has \(--settings default or live\)"
    ):
        read_project(folder, "other")


def test_the_settings_may_be_named_by_another_option(folder: Path) -> None:
    config = "[settings]\nshop = shop.settings\ndefault = %(shop)s\n\n[deploy]\npassword = 50%\nproject = Shop 5%\n"
    (folder / "scrapy.cfg").write_text(config)
    assert read_project(folder)[1:3] == ("shop.settings", "Shop 5%")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "it has no scrapy.cfg"),
        ("[deploy]\n", "does not say where the settings are"),
        ("[settings]\nlive = shop.live\nlab = shop.lab\n", r"no settings 'default': .*--settings live or lab"),
        ("[settings]\ndefault = shop.setings\n", "there is no such module; shop.settings is there"),
        ("settings\n", "cannot be read"),
        ("[settings]\ndefault = %(shop)s\n", "cannot be read"),
    ],
)
def test_what_is_no_project_is_refused_with_what_is_missing(folder: Path, config: str | None, words: str) -> None:
    (folder / "scrapy.cfg").unlink()
    if config is not None:
        (folder / "scrapy.cfg").write_text(config)
    with pytest.raises(EggBuildError, match=words):
        built(folder)


def test_settings_that_are_named_from_a_folder_above_are_found(folder: Path) -> None:
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = project.shop.settings\n")
    files, _, said = built(folder)
    assert b"settings = shop.settings" in files["EGG-INFO/entry_points.txt"]
    assert (
        "the settings are shop.settings: scrapy.cfg calls them project.shop.settings, which is not beside it" in said
    )


def test_a_folder_without_scrapy_cfg_is_told_what_else_there_is(folder: Path) -> None:
    with pytest.raises(EggBuildError, match="there is no such folder"):
        read_project(folder / "gone")
    with pytest.raises(EggBuildError, match=r"has some in it; deploy one of them: project$"):
        read_project(folder.parent)
    (folder / "scrapy.cfg").unlink()
    with pytest.raises(EggBuildError, match=r"default = shop\.settings$"):
        read_project(folder)


def test_what_is_no_egg_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.egg").write_text("x")
    with zipfile.ZipFile(tmp_path / "empty.egg", "w"):
        pass
    with pytest.raises(EggBuildError, match="not a ZIP file"):
        project_of_egg(tmp_path / "text.egg")
    with pytest.raises(EggBuildError, match="does not say where its settings are"):
        project_of_egg(tmp_path / "empty.egg")
