"""The API's description, made true where FastAPI's own is not."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI


class DescribedAPI(FastAPI):
    """A parameter of a query or header is there or not: "null" would be a word. FastAPI says that it may be null."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        for methods in document["paths"].values():
            for operation in methods.values():
                for parameter in operation.get("parameters", ()):
                    _forbid_null(parameter["schema"])
        return document


def _forbid_null(schema: dict[str, Any]) -> None:
    choices = [choice for choice in schema.pop("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        schema.update(choices[0])
    elif choices:
        schema["anyOf"] = choices
