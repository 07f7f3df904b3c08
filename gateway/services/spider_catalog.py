"""What can be asked for: spiders, and whether parameters suit them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from gateway.domain.errors import InvalidRequestError
from gateway.domain.job import DEFAULT_PROJECT, CrawlSpec
from gateway.domain.node_files import SpiderInfo
from gateway.storage.spiders import SpiderStore

#: Our own project's name to the world; Scrapyd and scrapy.cfg call it `default`.
PROJECT_ALIASES = {"discoverybot": DEFAULT_PROJECT}
_REFRESH_SECONDS = 2.0
#: What has just been deployed must not be called unknown; a client that asks for nonsense must not cost a query each.
_REFUSAL_MAX_AGE = 0.2


def project_name(name: str | None) -> str:
    if not name:
        return DEFAULT_PROJECT
    return PROJECT_ALIASES.get(name.lower(), name)


class SpiderCatalog:
    def __init__(self, store: SpiderStore, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._infos: list[SpiderInfo] = []

    def all(self, *, max_age: float = _REFRESH_SECONDS) -> list[SpiderInfo]:
        """Every known spider, as of at most `max_age` seconds ago."""
        with self._lock:
            if self._monotonic() - self._read_at > max_age:
                self._infos = self._store.all()
                self._read_at = self._monotonic()
            return self._infos

    def check(self, spec: CrawlSpec) -> None:
        """Raises `InvalidRequestError` that names the field and lists what exists."""
        info = self._find(spec, self.all()) or self._find(spec, self.all(max_age=_REFUSAL_MAX_AGE))
        if info is None:
            raise self._refusal(spec)
        if info.params_schema is None:
            _check_free_form(spec.params)
        else:
            _check_schema(spec.params, info.params_schema)

    def _find(self, spec: CrawlSpec, infos: list[SpiderInfo]) -> SpiderInfo | None:
        return next((info for info in infos if _is_of(spec, info) and info.name == spec.spider), None)

    def _refusal(self, spec: CrawlSpec) -> InvalidRequestError:
        of_project = {info.name for info in self._infos if _is_of(spec, info)}
        if self._infos and not of_project:
            return _unknown("project", spec.project, {info.project for info in self._infos})
        return _unknown("spider", spec.spider, of_project)


def _is_of(spec: CrawlSpec, info: SpiderInfo) -> bool:
    return info.project.lower() == spec.project.lower()


def _unknown(field: str, name: str, known: Iterable[str]) -> InvalidRequestError:
    names = sorted(known)
    hint = f"there is {', '.join(names)}" if names else "no crawl node has published its spiders yet"
    return InvalidRequestError(field, f"unknown {field} {name!r}; {hint}", detail={"field": field, "known": names})


def _check_schema(params: dict[str, Any], schema: dict[str, Any]) -> None:
    error = best_match(Draft202012Validator(schema).iter_errors(params))
    if error is None:
        return
    known = sorted(schema.get("properties", {}))
    field = _field(error)
    raise InvalidRequestError(field, error.message, detail={"field": field, "known": known})


def _field(error: ValidationError) -> str:
    path = ["params", *(str(part) for part in error.absolute_path)]
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        schema = error.schema if isinstance(error.schema, dict) else {}
        unknown = sorted(set(error.instance) - set(schema.get("properties", {})))
        path += unknown[:1]
    return ".".join(path)


#: Spider arguments with these names break Scrapy's own constructors.
RESERVED_PARAMS = frozenset({"name", "settings", "crawler", "start_urls", "depth", "_job", "spider_name"})


def _check_free_form(params: dict[str, Any]) -> None:
    for name, value in params.items():
        if name in RESERVED_PARAMS or name.startswith("_"):
            raise InvalidRequestError(f"params.{name}", "this name is taken by Scrapy or the platform")
        if not isinstance(value, str):
            raise InvalidRequestError(f"params.{name}", "a deployed spider's parameters are strings")
