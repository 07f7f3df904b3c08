"""Pages come in their order, one read ahead, and an error where its page would have come."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from gateway.datasets.read_ahead import read_ahead


def test_the_next_page_is_read_while_one_is_used() -> None:
    read = threading.Event()

    def pages() -> Iterator[int]:
        yield 1
        read.set()
        yield 2

    ahead = read_ahead(pages())
    assert next(ahead) == 1
    assert read.wait(10)
    assert list(ahead) == [2]


def test_no_pages() -> None:
    assert list(read_ahead(iter(()))) == []


def test_an_error_comes_after_the_pages_before_it() -> None:
    def pages() -> Iterator[int]:
        yield 1
        raise OSError("the disk")

    ahead = read_ahead(pages())
    assert next(ahead) == 1
    with pytest.raises(OSError, match="the disk"):
        next(ahead)


def test_who_stops_early_leaves_no_thread() -> None:
    ahead = read_ahead(iter(range(10)))
    assert next(ahead) == 0
    ahead.close()  # type: ignore[attr-defined]  # it is a generator
    assert not [one for one in threading.enumerate() if one.name.startswith("read-ahead")]
