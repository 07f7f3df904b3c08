"""Texts of an egg, which anybody may have made."""

from __future__ import annotations

import io
import zipfile

import pytest

from gateway.projects.source import LONGEST, MOST_BYTES, MOST_FILES, Source, read_source

MODULE = "shop.spiders.prices"
OWN = "shop/spiders/prices.py"


def read(files: dict[str, bytes], module: str | None = MODULE) -> Source:
    egg = io.BytesIO()
    with zipfile.ZipFile(egg, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in files.items():
            file.writestr(name, data)
    found = read_source([egg.getvalue()[:100], egg.getvalue()[100:]], module)
    assert found is not None
    return found


def test_the_spiders_module_comes_first_and_then_what_is_near_it() -> None:
    near = [OWN, "shop/spiders/base.py", "shop/settings.py", "zoo/a.py", "scrapy.cfg"]
    told = read({name: name.encode() for name in sorted(near)})
    assert [(one.path, one.text) for one in told.files] == [(name, name) for name in near]


def test_what_is_no_text_and_what_tools_have_made_is_left_out() -> None:
    names = ["logo.png", "shop/spiders/prices.pyc", "EGG-INFO/SOURCES.txt", "EGG-INFO/requirements.txt", OWN]
    assert [one.path for one in read(dict.fromkeys(names, b"x")).files] == [OWN, "EGG-INFO/requirements.txt"]


def test_it_is_bounded_however_well_the_egg_is_compressed() -> None:
    told = read({f"shop/{number:03}.py": b"x" * (2 * LONGEST) for number in range(300)} | {OWN: b"#" * (50 << 20)})
    assert sum(len(one.text) for one in told.files) == MOST_BYTES
    assert all(one.is_cut for one in told.files)
    assert (told.files[0].path, len(told.left_out)) == (OWN, MOST_FILES)
    assert len(told.files) + len(told.left_out) + told.more == 301
    many = read({f"{number}.py": b"" for number in range(MOST_FILES + 5)}, None)
    assert (len(many.files), len(many.left_out)) == (MOST_FILES, 5)


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert read({OWN: b"\xff = 1"}).files[0].text == "\ufffd = 1"


@pytest.mark.parametrize("damage", [b"", b"no zip", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_zip_or_an_empty_one_gives_nothing(damage: bytes) -> None:
    found = read_source([damage], MODULE)
    assert found is None or found == Source([], [], 0)


def test_a_file_whose_bytes_are_damaged_is_named_and_the_others_are_there() -> None:
    egg = io.BytesIO()
    with zipfile.ZipFile(egg, "w") as file:
        file.writestr(OWN, b"price = 1")
        file.writestr("shop/other.py", b"other = 1")
    found = read_source([egg.getvalue().replace(b"price = 1", b"price = 2")], MODULE)
    assert found
    assert ([one.path for one in found.files], found.left_out) == (["shop/other.py"], [OWN])


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_file_that_cannot_be_unpacked_is_named_however_it_was_packed(method: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as file:
        file.writestr(OWN, b"price = 1\n" * 1000)
    egg = bytearray(packed.getvalue())
    # the head of an entry has 30 bytes and its name; those of LZMA are 9 more
    begin = 30 + len(OWN) + 9
    egg[begin : begin + 8] = b"\xff" * 8
    found = read_source([bytes(egg)], MODULE)
    assert found
    assert (found.files, found.left_out) == ([], [OWN])
