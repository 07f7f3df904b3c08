"""Reads the next page while the page before it is processed, so that the store and this process work in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(pages: Iterator[T]) -> Iterator[T]:
    """The same pages; each is read in a thread while the page before it is used. An error in reading a page is raised
    when this page is asked for.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as reader:
        following = reader.submit(next, pages, None)
        while (page := following.result()) is not None:
            following = reader.submit(next, pages, None)
            yield page
