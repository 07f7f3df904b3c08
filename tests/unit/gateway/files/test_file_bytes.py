from __future__ import annotations

from pathlib import Path

import pytest

from gateway.errors import FileNotStoredError
from gateway.files.store import PART, FileBytes, FilesPlace


@pytest.fixture
def there(tmp_path: Path) -> FileBytes:
    return FileBytes(FilesPlace(tmp_path.as_uri()))


@pytest.mark.parametrize(
    "pieces", [[], [b""], [b"a"] * 1000, [b"", b"a", b""], [b"a" * PART, b"b"], [b"a" * 99_999] * 120]
)
def test_a_file_is_stored_whole_whatever_pieces_it_comes_in(pieces: list[bytes], there: FileBytes) -> None:
    there.put("a/b", iter(pieces))
    assert there.whole("a/b") == b"".join(pieces)


def test_a_file_is_moved_over_another(there: FileBytes) -> None:
    there.put("a", [b"new"])
    there.put("b/c", [b"old"])
    there.move("a", "b/c")
    assert there.whole("b/c") == b"new"
    with pytest.raises(FileNotStoredError):
        there.move("a", "b/c")
