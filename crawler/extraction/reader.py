"""Reads items out of a page by rules that were compiled once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from crawler.extraction.rules import FieldRule, LeafRule, Page, Rule
from crawler.extraction.values import matches, source_of, value_of
from gateway.contract.param_formats import compile_css, compile_pattern, compile_selector, compile_xpath, is_xpath

Select = Callable[[Any], list[Any]]


def selector(text: str | None) -> Select | None:
    """A function that selects by this CSS or XPath. Raises `ValueError`."""
    return _as_list(compile_selector(text)) if text else None


def _as_list(evaluate: Callable[[Any], Any]) -> Select:
    def select(scope: Any) -> list[Any]:
        # only elements have anything below them, not texts
        found = evaluate(scope) if hasattr(scope, "tag") else []
        return found if isinstance(found, list) else [found]

    return select


def _select(rule: Rule) -> Select | None:
    if rule.css:
        return _as_list(compile_css(rule.css))
    return _as_list(compile_xpath(rule.xpath)) if rule.xpath else None


def rule_of(written: str | Rule) -> Rule:
    """`written` as a rule. A selector alone means a rule that reads text."""
    if not isinstance(written, str):
        return written
    return FieldRule(xpath=written) if is_xpath(written) else FieldRule(css=written)


class ObjectReader:
    """Reads an object. `path` is put before the names of its fields in logs and stats."""

    def __init__(self, fields: Mapping[str, str | Rule], path: str = "") -> None:
        self._fields = {name: FieldReader(rule_of(written), f"{path}{name}") for name, written in fields.items()}

    def read(self, scope: Any, page: Page) -> dict[str, Any] | None:
        """`None` where nothing at all is found, or a required field is not."""
        read = {name: field.values(scope, page) for name, field in self._fields.items()}
        missing = [self._fields[name] for name, values in read.items() if not values and self._fields[name].required]
        found = any(read.values())
        if found and missing:
            page.missing.update(field.path for field in missing)
        if missing or not found:
            return None
        return {name: field.value(read[name]) for name, field in self._fields.items()}


class FieldReader:
    """Reads one field."""

    def __init__(self, rule: Rule, path: str) -> None:
        self.path = path
        self.required = rule.required
        self._rule = rule
        self._select = _select(rule)
        self._pattern = compile_pattern(rule.regex) if rule.regex else None
        inner = {} if type(rule) is LeafRule else getattr(rule, "fields", {})
        self._object = ObjectReader(inner, f"{path}.") if inner else None

    def values(self, scope: Any, page: Page) -> list[Any]:
        """All that is found, or the first alone where the rule wants no list."""
        page.check_time()
        found = self._objects(scope, page) if self._object else self._texts(scope, page)
        if self._rule.many:
            return list(found)
        first = next(found, None)
        return [] if first is None else [first]

    def value(self, values: list[Any]) -> Any:
        """The field's value in the item, from the `values` that were found."""
        if values:
            return values if self._rule.many else values[0]
        if self._rule.default is not None or self._object:
            return self._rule.default if not self._rule.many else self._rule.default or []
        if self._rule.many:
            return []
        return False if self._rule.type == "boolean" else None

    def _nodes(self, scope: Any) -> list[Any]:
        return [scope] if self._select is None else self._select(scope)

    def _objects(self, scope: Any, page: Page) -> Iterator[Any]:
        for node in self._nodes(scope):
            read = self._object.read(node, page) if self._object else None
            if read is not None:
                yield read

    def _texts(self, scope: Any, page: Page) -> Iterator[Any]:
        for text in self._sources(scope):
            try:
                value = value_of(text, self._rule, page)
            except ValueError as error:
                page.cannot_read(self.path, text, error)
                continue
            if value is not None:
                yield value

    def _sources(self, scope: Any) -> Iterator[str]:
        for node in self._nodes(scope):
            source = source_of(node, self._rule)
            if source is None:
                continue
            for text in matches(self._pattern, source) if self._pattern else (source,):
                # for a boolean, the existence of an element counts, even if it has no text
                if text.strip() or self._rule.type == "boolean":
                    yield text
