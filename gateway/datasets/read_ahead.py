"""Reads the next page while the one before is worked on: the store and this process each have a core."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(pages: Iterator[T]) -> Iterator[T]:
    """The same pages; each is read in a thread while the one before it is used. What reading raises is raised where
    the page would have come.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as reader:
        following = reader.submit(next, pages, None)
        while (page := following.result()) is not None:
            following = reader.submit(next, pages, None)
            yield page
