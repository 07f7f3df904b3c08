"""Reads the source of a deployed version from its egg: the text files that somebody needs to repair a spider.

An egg is an untrusted ZIP file: neither its sizes nor its names can be relied on. So nothing is extracted to disk.
"""

from __future__ import annotations

import lzma
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import NamedTuple

#: The endings of a project's text files. Files in `EGG-INFO` are left out, except the requirements, as tools make
#: them.
_ENDINGS = frozenset({".py", ".cfg", ".toml", ".txt", ".json", ".yaml", ".yml"})
_METADATA, _KEPT = "EGG-INFO/", "EGG-INFO/requirements.txt"
#: Maximum number of bytes of all texts together, of bytes of one text, and of texts.
MOST_BYTES, LONGEST, MOST_FILES = 256 << 10, 64 << 10, 100
#: An egg with more bytes than this is buffered in a temporary file while it is read.
_IN_MEMORY = 4 << 20


class SourceFile(NamedTuple):
    """A text file of an egg."""

    path: str
    text: str
    #: Whether the text is only the beginning of the file.
    is_cut: bool


class Source(NamedTuple):
    """The text files of an egg, as far as there is room for them."""

    files: list[SourceFile]
    #: The paths of further texts, for which there was no room.
    left_out: list[str]
    #: How many more texts there are.
    more: int


def read_source(pieces: Iterable[bytes], module: str | None) -> Source | None:
    """The texts in the egg, those near the spider's `module` first; `None` if the egg is not a ZIP file."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
        for piece in pieces:
            file.write(piece)
        file.seek(0)
        try:
            with zipfile.ZipFile(file) as egg:
                return _read(egg, module)
        except (zipfile.BadZipFile, NotImplementedError):
            return None


def _read(egg: zipfile.ZipFile, module: str | None) -> Source:
    spider = f"{module.replace('.', '/')}.py" if module else ""
    wanted = sorted((one for one in egg.infolist() if _is_wanted(one)), key=lambda one: _place(one.filename, spider))
    files: list[SourceFile] = []
    left_out: list[str] = []
    room = MOST_BYTES
    for one in wanted:
        text = _text(egg, one, min(room, LONGEST)) if room > 0 and len(files) < MOST_FILES else None
        if text is None:
            left_out.append(one.filename[:500])
        else:
            files.append(SourceFile(one.filename[:500], *text))
            room -= len(text[0].encode())
    return Source(files, left_out[:MOST_FILES], max(0, len(left_out) - MOST_FILES))


def _is_wanted(one: zipfile.ZipInfo) -> bool:
    name = one.filename
    is_text = PurePosixPath(name).suffix in _ENDINGS
    return is_text and (name == _KEPT or not name.startswith(_METADATA)) and not one.flag_bits & 1


def _place(name: str, spider: str) -> tuple[bool, bool, int, str]:
    """A sort key: the spider's own module first, then code, then other texts; each by how many folders it shares with
    the module.
    """
    own, parts = spider.split("/")[:-1], name.split("/")[:-1]
    shared = next((n for n, pair in enumerate(zip(own, parts, strict=False)) if pair[0] != pair[1]), None)
    shared = min(len(own), len(parts)) if shared is None else shared
    return name != spider, not name.endswith(".py"), -shared, name


def _text(egg: zipfile.ZipFile, one: zipfile.ZipInfo, most: int) -> tuple[str, bool] | None:
    """Up to `most` bytes of the file as text, and whether there is more; `None` if it cannot be read. No more than
    this is decompressed.
    """
    try:
        with egg.open(one) as file:
            data = file.read(most + 1)
    except (zipfile.BadZipFile, NotImplementedError, OSError, RuntimeError, EOFError, zlib.error, lzma.LZMAError):
        return None
    return data[:most].decode("utf-8", "replace"), len(data) > most
