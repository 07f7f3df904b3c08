"""The API's description, made true where FastAPI's own is not."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from fastapi import FastAPI

from gateway.domain.api_key import Scope
from gateway.web.access_rules import OPEN, RULES
from gateway.web.session_guard import COOKIE, CSRF_HEADER, SECURE_COOKIE

_SCHEME = "key"
_KEY = {"type": "http", "scheme": "bearer", "description": "`db_<id>_<secret>`, from `discoverybot keys create`."}
_SESSION = "session"
_COOKIE = {
    "type": "apiKey",
    "in": "cookie",
    "name": COOKIE,
    "description": f"Of `POST /session` (over https `{SECURE_COOKIE}`); to change things also send `{CSRF_HEADER}`.",
}


class DescribedAPI(FastAPI):
    """A parameter of a query or header is there or not: "null" would be a word. FastAPI says that it may be null."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        document["components"]["securitySchemes"] = {_SCHEME: _KEY, _SESSION: _COOKIE}
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                operation["security"] = _security(f"{method.upper()} {path}")
                for parameter in operation.get("parameters", ()):
                    _forbid_null(parameter["schema"])
        return document

    def query_parameters(self, path: str, method: str) -> frozenset[str] | None:
        """Names that the operation takes; `None` for what is not described. HEAD takes what GET does."""
        return self._query_parameters.get((path, "get" if method == "HEAD" else method.lower()))

    @cached_property
    def _query_parameters(self) -> dict[tuple[str, str], frozenset[str]]:
        return {
            (path, method): frozenset(
                parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"
            )
            for path, methods in self.openapi()["paths"].items()
            for method, operation in methods.items()
        }


def _security(route: str) -> list[dict[str, list[str]]]:
    """With the scope that it takes; and nothing, which is enough while there are no keys."""
    return [] if route in OPEN else [{_SCHEME: [RULES.get(route, Scope.ADMIN)]}, {_SESSION: []}, {}]


def _forbid_null(schema: dict[str, Any]) -> None:
    choices = [choice for choice in schema.pop("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        schema.update(choices[0])
    elif choices:
        schema["anyOf"] = choices
