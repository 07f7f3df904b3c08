"""Eggs that people have, and eggs that mean harm, unpacked."""

from __future__ import annotations

import stat
import struct
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from eggs import egg, source, teller

from crawler.node import unpacking
from crawler.node.projects import EggError, ProjectCode, read_egg
from crawler.node.unpacking import Holds, place, prepare, take_away, unpack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    prepare(tmp_path / "unpacked", shared=True)
    return tmp_path / "unpacked"


def written(tmp_path: Path, content: bytes, name: str = "x.egg") -> Path:
    (tmp_path / name).write_bytes(content)
    return tmp_path / name


def archive(write: Callable[[zipfile.ZipFile], object]) -> bytes:
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as opened:
        write(opened)
    return content.getvalue()


def member(name: str, *, mode: int = 0o100644, method: int = zipfile.ZIP_DEFLATED, text: str = "x") -> bytes:
    info = zipfile.ZipInfo(name)
    info.external_attr, info.compress_type = mode << 16, method
    return archive(lambda opened: opened.writestr(info, text))


def several(*names: str) -> bytes:
    return archive(lambda opened: [opened.writestr(name, "") for name in names])


def understated(size: int) -> bytes:
    """An egg that says of its only file that it is tiny."""
    content = archive(lambda opened: opened.writestr("big.txt", "x" * size))
    directory = content.index(b"PK\x01\x02")
    return content[: directory + 24] + struct.pack("<I", 1) + content[directory + 28 :]


def test_a_content_lies_under_its_hash_and_the_name_by_which_its_metadata_is_found(
    folder: Path, tmp_path: Path
) -> None:
    files = source("shop", spiders="") | {
        "EGG-INFO/PKG-INFO": "Metadata-Version: 2.1\nName: My-Shop\nVersion: 3.2+x\n"
    }
    there = place(written(tmp_path, egg(files)), folder)
    assert there.name == "My_Shop-3.2_x.egg"
    assert len(there.parent.name.partition("-")[0]) == 64
    found = read_egg(there)
    assert (found.settings_module, found.packages) == ("shop.settings", {"shop"})
    assert [*there.glob("shop/__pycache__/settings.*.pyc")]
    assert [*folder.iterdir()] == [there.parent]


def test_the_same_content_is_unpacked_once_and_another_beside_it(folder: Path, tmp_path: Path) -> None:
    first = place(written(tmp_path, teller("1")), folder)
    made = first.stat().st_ino
    assert place(written(tmp_path, teller("1"), "again.egg"), folder) == first
    assert first.stat().st_ino == made
    assert place(written(tmp_path, teller("2"), "other.egg"), folder) != first


def test_who_may_read_it_may_not_alter_it(folder: Path, tmp_path: Path) -> None:
    there = place(written(tmp_path, teller("1")), folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o711, "others pass, and do not list"
    prepare(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700, "where there are no others"
    assert stat.S_IMODE((there / "teller/settings.py").stat().st_mode) == 0o444
    assert not any(path.stat().st_mode & 0o022 for path in there.rglob("*"))


HOSTILE = {
    "a name that leads up": (member("../up.py"), "leads out"),
    "a name that leads up on its way": (member("shop/../../up.py"), "leads out"),
    "an absolute name": (member("/etc/shop.py"), "leads out"),
    "a name of another system": (member("shop\\..\\..\\up.py"), "leads out"),
    "a link": (member("shop/link", mode=stat.S_IFLNK | 0o777, text="/etc/passwd"), "link"),
    "a device": (member("shop/null", mode=stat.S_IFCHR | 0o666), "device"),
    "a name that is too long": (member("x" * 300), "too long"),
    "a name that lies too deep": (member("x/" * 40 + "y"), "too deep"),
    "one name twice": (several("a.py", "b.py").replace(b"b.py", b"a.py"), "two files in one"),
    "a file that is a folder": (several("a", "a/b"), "two files in one"),
    "a method that needs much memory": (member("a.py", method=zipfile.ZIP_LZMA), "deflate"),
    "a size that is a lie": (understated(1 << 20), "cannot be read"),
    "half an egg": (teller("1")[:-100], "cannot be read"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_means_harm_is_refused_and_leaves_nothing(what: str, folder: Path, tmp_path: Path) -> None:
    content, words = HOSTILE[what]
    with pytest.raises(EggError, match=words):
        place(written(tmp_path, content), folder)
    assert [*folder.iterdir()] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["unpacked", "x.egg"]


def test_what_is_unpacked_is_counted_and_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MOST_BYTES", 1000)
    monkeypatch.setattr(unpacking, "MOST_ENTRIES", 10)
    bomb = archive(lambda opened: opened.writestr("zeros", bytes(100_000)))
    many = several(*(f"{number}/x" for number in range(6)))
    for content, words in ((bomb, "larger than"), (many, "more than 10 files")):
        with pytest.raises(EggError, match=words):
            unpack(BytesIO(content), tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 1000


def test_a_disk_that_would_be_nearly_full_is_the_node_s_matter(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nearly full"):
        place(written(tmp_path, teller("1")), folder, keep_free=1 << 60)
    assert [*folder.iterdir()] == []


def test_what_is_held_stays_and_what_is_used_stays_and_the_rest_goes(folder: Path, tmp_path: Path) -> None:
    used, held, left = (place(written(tmp_path, teller(str(n)), f"{n}.egg"), folder) for n in range(3))
    holds = Holds()
    with holds.hold(ProjectCode(held)):
        gone = [*take_away(folder, [used, *holds.paths()])]
    assert [path.name.startswith(f".removed-{left.parent.name}") for path in gone] == [True]
    assert (used / "teller").exists()
    assert (held / "teller").exists()
    with pytest.raises(FileNotFoundError), holds.hold(ProjectCode(left)):
        pass
    assert len([*take_away(folder, [used, *holds.paths()])]) == 1


def test_what_a_killed_process_has_left_goes_at_the_next_start(folder: Path, tmp_path: Path) -> None:
    there = place(written(tmp_path, teller("1")), folder)
    (folder / ".incoming-1/egg").mkdir(parents=True)
    (folder / ".removed-2").mkdir()
    prepare(folder)
    assert [*folder.iterdir()] == [there.parent]
