"""Makes the types of events and of calls of webhooks of the Python client from the API's description."""

from __future__ import annotations

import sys
from keyword import iskeyword
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from client_params import Module
from client_source import ROOT, Schema, formatted

from gateway.application import create_app
from gateway.settings import Settings

TARGET = ROOT / "client/src/discoverybot_client/events.py"
HEAD = '''"""What streams and calls of webhooks say, made from the API's description by `make blocking-client`.

These are types only: at run time all is as it came, also what a later release adds. Times are text.
"""

from __future__ import annotations

from typing import Any, Literal, Required, TypedDict

from discoverybot_client.records import Event


class JobEndedCall(TypedDict, total=False):
    """What the `webhook_url` of a crawl is called with. The counts are missing if nothing ran."""

    event: Required[Literal["job.ended"]]
    job_id: Required[str]
    status: Required[Literal["finished", "partial", "error", "cancelled"]]
    reason: Required[str | None]
    message: Required[str | None]
    finished_at: Required[str | None]
    completed_pages: int
    items_count: int
    errors_count: int
    schedule_id: str
    """Of a run of a schedule."""
    type: None
    """Calls of endpoints have it."""
'''
#: Alias → the path whose stream has these events, and what the client adds to them.
STREAMS = {
    "JobEvent": ("/jobs/{job_id}/logs", 'Event[Literal["dropped"], dict[str, Any]]'),
    "ManyJobsEvent": ("/events", 'Event[Literal["dropped"], dict[str, Any]]'),
}


class Events(Module):
    """The text of the module, as far as it is written."""

    head = HEAD

    def add_calls(self) -> None:
        """The body of each call, with the events that it comes for."""
        kinds: dict[str, list[str]] = {}
        for kind, methods in self._document["webhooks"].items():
            schema = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
            kinds.setdefault(schema["$ref"], []).append(kind)
        names = []
        for reference, types in kinds.items():
            schema = self._resolved({"$ref": reference})
            of_others = {"type": "null", "description": "Calls of a crawl's `webhook_url` have it."}
            fields = {**schema["properties"], "type": {"enum": types}, "event": of_others}
            names.append(self._type({**schema, "properties": fields}))
        self._texts["Call"] = f"Call = {' | '.join(['JobEndedCall', *names])}\n"

    def add_stream(self, name: str, path: str, added: str) -> None:
        """The events of this stream, by their names."""
        content = self._document["paths"][path]["get"]["responses"]["200"]["content"]["text/event-stream"]
        events = []
        for one in content["x-itemSchema"]["oneOf"]:
            fields = self._resolved(one)["properties"]
            data = self._type(fields["data"]["contentSchema"])
            events.append(f"Event[Literal[{fields['event']['const']!r}], {data}]")
        self._texts[name] = f"{name} = {' | '.join([*events, added])}\n"

    def _type(self, schema: Schema) -> str:
        if {"type": "string"} in schema.get("anyOf", ()):  # an open enumeration, or `null` beside it
            return "str | None" if {"type": "null"} in schema["anyOf"] else "str"
        return "str" if schema.get("format") == "date-time" else super()._type(schema)

    def _object(self, schema: Schema) -> str:
        fields = schema.get("properties", {})
        if any(iskeyword(name) for name in fields):  # a class cannot have it
            return f"dict[str, {' | '.join(dict.fromkeys(self._type(one) for one in fields.values()))}]"
        title = schema.get("title", "")
        return super()._object({**schema, "title": f"{title[:-4]}Fields" if title.endswith("View") else title})


def made(document: Schema) -> str:
    """The text of the module."""
    module = Events(document)
    module.add_calls()
    for name, (path, added) in STREAMS.items():
        module.add_stream(name, path, added)
    return formatted(module.text())


if __name__ == "__main__":
    TARGET.write_text(made(create_app(Settings()).openapi()))
