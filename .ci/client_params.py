"""Makes the types of the Python client's arguments from the API's description."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from client_source import PLAIN, ROOT, Schema, docstring, formatted

from gateway.application import create_app
from gateway.settings import Settings
from gateway.web.schemas.crawl import OF_INTERVALS

TARGET = ROOT / "client/src/discoverybot_client/params.py"
HEAD = '''"""What the methods of both clients take by name, made from the API's description by `make blocking-client`.

At run time nothing is refused here: the gateway says what it does not know.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Required, TypedDict
'''


class Arguments(NamedTuple):
    """One class of arguments: the body of an operation, or its query."""

    name: str
    #: Method and path.
    method: str
    path: str
    #: What the client's method has parameters of its own for, or refuses.
    without: tuple[str, ...] = ()
    #: The class that has some of them already.
    base: str = "TypedDict"
    #: The client leaves out what is `None`.
    none_is_left_out: bool = False


#: What is about the form of an answer.
TABLE = ("format", "escape_formulas", "bom")
#: A class comes before those that extend it.
ARGUMENTS = (
    Arguments(
        "CrawlFields",
        "post",
        "/crawl",
        without=("spider", "start_urls", "interval", *OF_INTERVALS),
        none_is_left_out=True,
    ),
    Arguments(
        "ScheduleFields",
        "post",
        "/schedules",
        without=("spider", "start_urls", "interval", "name"),
        base="CrawlFields",
        none_is_left_out=True,
    ),
    Arguments("ScheduleChanges", "patch", "/schedules/{schedule_id}"),
    Arguments("DatasetOptions", "put", "/datasets/{name}"),
    Arguments("DatasetChanges", "patch", "/datasets/{name}", base="DatasetOptions"),
    Arguments("EndpointFields", "post", "/endpoints", without=("url",)),
    Arguments("EndpointChanges", "patch", "/endpoints/{endpoint_id}"),
    Arguments("JobCountFilters", "get", "/jobs/count", without=("after",), none_is_left_out=True),
    Arguments("JobFilters", "get", "/jobs", without=("after",), base="JobCountFilters", none_is_left_out=True),
    Arguments("ScheduleFilters", "get", "/schedules", without=("after",), none_is_left_out=True),
    Arguments("SpiderFilters", "get", "/spiders", without=("after",), none_is_left_out=True),
    Arguments("DeadLetterFilters", "get", "/dead-letters", without=("after",), none_is_left_out=True),
    Arguments("RequestFilters", "get", "/jobs/{job_id}/requests", without=("after", *TABLE), none_is_left_out=True),
    Arguments(
        "RequestExportOptions", "get", "/jobs/{job_id}/requests/download", without=("format",), none_is_left_out=True
    ),
    Arguments("ErrorFilters", "get", "/errors", without=("after",), none_is_left_out=True),
    Arguments("AlertFilters", "get", "/alerts", without=("after",), none_is_left_out=True),
    Arguments("AuditFilters", "get", "/audit", without=("after",), none_is_left_out=True),
    Arguments("AlertRuleFields", "post", "/alerts/rules", without=("name", "when")),
    Arguments("AlertRuleChanges", "patch", "/alerts/rules/{rule_id}"),
    Arguments("SiteFields", "post", "/sites", without=("name", "search_url")),
    Arguments("SiteChanges", "patch", "/sites/{name}"),
    Arguments("ScrapeFields", "post", "/jobs/scrape", without=("site_name",)),
    Arguments("TargetFields", "post", "/targets", without=("site",)),
    Arguments("TargetChanges", "patch", "/targets/{target_id}"),
    Arguments("EnvironmentFields", "put", "/projects/{project}/env"),
    Arguments("KeyFields", "post", "/keys", without=("user_id", "scopes")),
    Arguments("SavedViewChanges", "patch", "/views/{view_id}"),
    Arguments("ResendFields", "post", "/endpoints/{endpoint_id}/deliveries/resend"),
)
#: Other arguments: name of the type → path and the parameter of its query.
OTHERS = {
    "ChangeTypes": ("/datasets/{name}/changes", "types"),
    "DeliveryState": ("/endpoints/{endpoint_id}/deliveries", "state"),
    "ItemFormat": ("/jobs/{job_id}/items/download", "format"),
    "LogFormat": ("/jobs/{job_id}/logs/download", "format"),
    "RequestFormat": ("/jobs/{job_id}/requests/download", "format"),
    "RunState": ("/datasets/{name}/runs", "state"),
    "ListName": ("/views", "list"),
}


class Module:
    """The text of the module, as far as it is written."""

    head = HEAD

    def __init__(self, document: Schema) -> None:
        self._document = document
        #: Each class or alias by its name, those first that others are made of.
        self._texts: dict[str, str] = {}
        self._fields: dict[str, dict[str, str]] = {"TypedDict": {}}

    def text(self) -> str:
        return "\n\n".join((self.head, *self._texts.values()))

    def add(self, wanted: Arguments) -> None:
        if wanted.method == "get":
            schemas = self._query(wanted.path)
        else:
            body = self._document["paths"][wanted.path][wanted.method]["requestBody"]
            schemas = self._resolved(body["content"]["application/json"]["schema"])["properties"]
        fields = {name: self._type(schema) for name, schema in schemas.items() if name not in wanted.without}
        if wanted.none_is_left_out:
            fields = {name: kind if kind.endswith("None") else f"{kind} | None" for name, kind in fields.items()}
        doc = f"The fields of `{wanted.method.upper()} {wanted.path}`."
        self._add_class(wanted.name, fields, doc, _abouts(schemas), wanted.base)

    def add_alias(self, name: str, path: str, parameter: str) -> None:
        kind = self._type(self._query(path)[parameter])
        self._texts.setdefault(name, f"{name} = {kind}\n")

    def _query(self, path: str) -> dict[str, Schema]:
        parameters = self._document["paths"][path]["get"]["parameters"]
        return {
            one["name"]: {**one["schema"], "description": one.get("description")}
            for one in parameters
            if one["in"] == "query"
        }

    def _add_class(
        self, name: str, fields: dict[str, str], doc: str, abouts: dict[str, str], base: str = "TypedDict"
    ) -> None:
        inherited = self._fields[base]
        if not inherited.items() <= fields.items():
            raise ValueError(f"{name} lacks fields of {base}, or has others of the same names")
        own = [
            line
            for field, kind in fields.items()
            if field not in inherited
            for line in (f"    {field}: {kind}", *docstring(abouts.get(field)))
        ]
        self._texts[name] = "\n".join([f"class {name}({base}, total=False):", *docstring(doc), "", *own, ""])
        self._fields[name] = fields

    def _resolved(self, schema: Schema) -> Schema:
        if "$ref" not in schema:
            return schema
        found: Schema = self._document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return found

    def _type(self, schema: Schema) -> str:
        """What it is in Python; what it is made of is added."""
        if "$ref" in schema and "enum" in self._resolved(schema):
            name = str(schema["$ref"].rpartition("/")[2])
            self._texts[name] = f"{name} = {self._type(self._resolved(schema))}\n"
            return name
        schema = self._resolved(schema)
        if "anyOf" in schema:
            return " | ".join(dict.fromkeys(self._type(one) for one in schema["anyOf"]))
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            return f"Literal[{', '.join(map(repr, values))}]"
        match schema["type"]:
            case "array":
                return f"list[{self._type(schema['items'])}]"
            case "object":
                return self._object(schema)
        return "datetime | str" if schema.get("format") == "date-time" else PLAIN[schema["type"]]

    def _object(self, schema: Schema) -> str:
        if "properties" not in schema:
            values = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
            kinds = [self._type(value) for value in values if isinstance(value, dict)]
            return f"dict[str, {' | '.join(kinds) or 'Any'}]"
        name = schema["title"]
        if name not in self._texts:
            required = schema.get("required", ())
            kinds = {field: self._type(value) for field, value in schema["properties"].items()}
            fields = {field: f"Required[{kind}]" if field in required else kind for field, kind in kinds.items()}
            doc = " ".join(schema.get("description", "As the API has it.").split())
            self._add_class(name, fields, doc, _abouts(schema["properties"]))
        return str(name)


def _abouts(schemas: dict[str, Schema]) -> dict[str, str]:
    """What the description says of each."""
    return {name: schema["description"] for name, schema in schemas.items() if schema.get("description")}


def made(document: Schema) -> str:
    """The text of the module."""
    module = Module(document)
    for wanted in ARGUMENTS:
        module.add(wanted)
    for name, (path, parameter) in OTHERS.items():
        module.add_alias(name, path, parameter)
    return formatted(module.text())


if __name__ == "__main__":
    TARGET.write_text(made(create_app(Settings()).openapi()))
