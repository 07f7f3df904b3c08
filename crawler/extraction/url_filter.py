"""Which URLs a crawl wants, by patterns of its parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field

from gateway.contract.param_formats import FORMATS, MAX_LENGTH, compile_pattern

#: Patterns of one list.
MAX_PATTERNS = 50


def formatted(name: str) -> tuple[AfterValidator, object]:
    """For `Annotated`: a text in one of the `param_formats`, checked by the model and told in its schema."""

    def check(text: str) -> str:
        FORMATS[name](text)
        return text

    return AfterValidator(check), Field(max_length=MAX_LENGTH, json_schema_extra={"format": name})


_check_pattern, _pattern_field = formatted("re2")
Pattern = Annotated[str, _check_pattern, _pattern_field]
Patterns = Annotated[list[Pattern], Field(max_length=MAX_PATTERNS)]


class UrlFilter:
    """Takes what one of `include` is found in (all, if there are none), and none of `exclude`."""

    def __init__(self, include: Iterable[str] = (), exclude: Iterable[str] = ()) -> None:
        self._include = [compile_pattern(pattern) for pattern in include]
        self._exclude = [compile_pattern(pattern) for pattern in exclude]

    def takes(self, url: str) -> bool:
        wanted = not self._include or any(pattern.search(url) for pattern in self._include)
        return wanted and not any(pattern.search(url) for pattern in self._exclude)
