"""A spider's parameters as the command line gives them: one by one, or all at once as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gateway.cli.api import Api, ApiError
from gateway.domain.job import DEFAULT_PROJECT


def gather_params(
    api: Api, spider: dict[str, str | None], text: str | None, pairs: list[str], *, render: bool = False
) -> dict[str, Any]:
    """`--params`, then each `--param` over it, then `--render`. `spider` is what `GET /spiders` is asked for."""
    params = _read(text) if text else {}
    if pairs:
        params |= _typed(pairs, _schema(api, spider))
    return params | ({"render": True} if render else {})


def _read(text: str) -> dict[str, Any]:
    """JSON, or `@` and the file that it is in."""
    try:
        params = json.loads(Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text)
    except OSError as error:
        raise ApiError(f"params: {text[1:]} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ApiError(f"params: is not JSON: {error}") from None
    if not isinstance(params, dict):
        raise ApiError("params: must be a JSON object")
    return params


def _schema(api: Api, spider: dict[str, str | None]) -> dict[str, Any] | None:
    """The parameters' JSON Schema; `None` where they are any strings. Without a project it is our own spider."""
    project = spider["project"] or DEFAULT_PROJECT
    found = api.get("/spiders", **{**spider, "project": project})["spiders"]
    # of several versions the latest, which is the one that would be run
    best: dict[str, Any] = max(found, key=lambda one: bool(one.get("latest")), default={})
    schema: dict[str, Any] | None = best.get("params_schema")
    return schema


def _typed(pairs: list[str], schema: dict[str, Any] | None) -> dict[str, Any]:
    """`k=v` pairs, each value of the type that the schema names."""
    params = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise ApiError(f"param: {pair!r} is not of the form name=value")
        takes_text = schema is None or _takes_text(schema.get("properties", {}).get(name, {}))
        params[name] = value if takes_text else _json_or_text(value)
    return params


def _takes_text(schema: dict[str, Any]) -> bool:
    """Whether text is all it may be; `null` aside."""
    choices = [choice.get("type") for choice in schema.get("anyOf", [schema])]
    return [choice for choice in choices if choice != "null"] == ["string"]


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
