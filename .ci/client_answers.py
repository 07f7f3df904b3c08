"""Makes the records of the Python client from the API's description: one class for each kind of answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from client_source import PLAIN, ROOT, Schema, docstring, formatted

from gateway.application import create_app
from gateway.settings import Settings

TARGET = ROOT / "client/src/discoverybot_client/answers.py"
HEAD = '''"""What the gateway says, as objects, made from the API's description by `make blocking-client`."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal

from discoverybot_client.records import Record
'''
TIMES = {"date-time": "datetime", "date": "date"}


class Kind(NamedTuple):
    """A class of the client."""

    name: str
    #: Of its answers: the first one has all fields, and what others lack may be `None`.
    schemas: tuple[str, ...]
    #: The fields that name one among all, and what else people see of it.
    names: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()
    doc: str = ""
    #: Methods have these names.
    without: tuple[str, ...] = ()
    #: What one that was just made does not know yet.
    unsure: tuple[str, ...] = ()
    #: A class of those of which all is known: in it, only what the first schema says so may be `None`.
    whole: str = ""


KINDS = (
    Kind(
        "JobRecord",
        ("JobDetail", "JobSummary", "JobStatusView"),
        ("job_id",),
        ("status",),
        "A job: in lists and at its start it has fewer fields than `client.job(…)`.",
        unsure=("spider", "created_at"),
        whole="JobDetailRecord",
    ),
    Kind(
        "ScheduleRecord",
        ("ScheduleView", "ScheduleSummary"),
        ("schedule_id",),
        ("name", "interval", "state"),
        "A schedule: in lists it has fewer fields.",
    ),
    Kind("SpiderRecord", ("SpiderView",), ("project", "version", "name"), (), "What can be crawled with."),
    Kind("FileRecord", ("FileView",), (), ("name", "size", "attempt"), "A file that a crawl has written."),
    Kind(
        "DatasetRecord",
        ("DatasetView",),
        ("user_id", "name"),
        (),
        "A dataset: what is known across runs.",
        ("items",),
    ),
    Kind("DatasetItem", ("DatasetItemView",), (), ("key", "seq"), "An item of a dataset, and what is known of it."),
    Kind("Change", ("ChangeView",), ("id",), ("type", "key"), "What a run has found out of one item."),
    Kind("DatasetRunRecord", ("DatasetRunView",), ("job_id",), ("state",), "What a crawl has done to a dataset."),
    Kind(
        "DatasetHealth", ("DatasetHealth",), (), ("stage", "runs"), "How a dataset's last run compares with others."
    ),
    Kind(
        "EndpointRecord",
        ("MadeEndpoint", "EndpointView"),
        ("endpoint_id",),
        ("url",),
        "A receiver of events; `secret` is of one that was just made.",
    ),
    Kind(
        "DeliveryRecord",
        ("WholeDelivery", "DeliveryView"),
        ("delivery_id",),
        ("type", "state"),
        "A call of an endpoint; `body` is of one that was asked for by its id.",
    ),
    Kind("AlertRecord", ("AlertView",), ("alert_id",), ("rule", "group", "firing"), "What a rule has found."),
    Kind("AlertRuleRecord", ("AlertRuleView",), ("rule_id",), ("name",), "When an alert begins, and who is told."),
    Kind("AlertRulePreview", ("AlertRulePreviewView",), (), ("runs", "count"), "What a rule would have found."),
    Kind(
        "ErrorGroupRecord",
        ("ErrorGroupDetail", "ErrorGroupView"),
        ("error_id",),
        ("title", "state"),
        "Errors of many runs that are the same; in lists it has fewer fields.",
    ),
    Kind("JobErrorRecord", ("JobErrorView",), (), ("title", "count", "mark"), "Errors of one job that are the same."),
    Kind("DeadLetterRecord", ("DeadLetter",), ("id",), ("spider", "message"), "A job that is out of retries."),
    Kind("RequestRecord", ("RequestView",), (), ("url", "status"), "A request that a crawl has made."),
    Kind("JobProgress", ("JobProgressView",), (), ("estimate",), "How far a job is, and how it has come there."),
    Kind("RepairBundle", ("RepairBundle",), (), ("version", "last_good_run"), "What a spider is mended with."),
    Kind("SpiderFields", ("SpiderFieldsView",), (), ("complete",), "How full a spider's fields were, run by run."),
    Kind("JobsHealth", ("JobsHealth",), (), ("status", "free_slots"), "What waits, and for how long."),
    Kind("SchedulerStatus", ("SchedulerStatusView",), (), ("due", "lag_seconds"), "Whether schedules are on time."),
    Kind("Moment", ("MomentView",), (), ("at", "kind"), "What has happened to a job at a time."),
    Kind("FieldCoverage", ("FieldsView",), (), ("items", "counted"), "How full the fields of a job's items are."),
    Kind(
        "ItemDifferences",
        ("ItemDifferences",),
        (),
        ("new", "changed", "removed"),
        "Which items of a job are new, changed or gone since another.",
    ),
    Kind("ComingRun", ("ComingRun",), (), ("at", "local"), "A run of a schedule that is to come."),
    Kind(
        "Occurrence",
        ("LedgerEntryView",),
        (),
        ("kind", "due", "job_id"),
        "A time of a schedule, and what came of it.",
    ),
    Kind("CrawlPreview", ("CrawlPreview",), (), ("accepted",), "What would become of a crawl."),
    Kind("BulkReport", ("BulkReport",), (), ("action", "matched", "done"), "What was done to many jobs."),
    Kind("RunDays", ("RunDaysView",), (), ("total",), "How runs went, day by day."),
    Kind("SiteRecord", ("SiteView",), ("name",), ("enabled",), "Where is searched, and how often."),
    Kind("TargetRecord", ("TargetView",), ("id",), ("site", "keywords"), "What is searched for on a site."),
    Kind("ProjectRecord", ("ProjectView",), ("name",), ("latest",), "A project of spiders."),
    Kind("VersionRecord", ("VersionView",), (), ("version", "latest"), "A version of a project."),
    Kind("Deployment", ("DeployedView",), (), ("project", "version", "spiders"), "A version that nodes have now."),
    Kind(
        "Dependencies", ("DependenciesView",), (), ("project", "version"), "What nodes have installed for a version."
    ),
    Kind(
        "Variable", ("VariableView",), (), ("name", "secret"), "A variable of a project; of a secret without value."
    ),
    Kind("ProjectSettings", ("SettingsView",), (), ("project",), "The settings of a project that were set here."),
    Kind("NodeRecord", ("NodeView",), ("name",), ("state",), "A machine that crawls."),
    Kind("Invitation", ("InvitationView",), (), ("expires_at",), "What a new node needs to join."),
    Kind(
        "KeyRecord",
        ("IssuedView", "KeyView"),
        ("key_id",),
        ("user_id", "scopes", "state"),
        "A key; `key` itself is of one that was just made.",
    ),
    Kind("Session", ("SessionView",), (), ("user_id", "scopes"), "Whose key it is, and what it may do."),
    Kind("AuditEntry", ("AuditView",), ("id",), ("at", "route", "user_id"), "Who has changed what, and when."),
    Kind(
        "SavedViewRecord",
        ("SavedViewOfList",),
        ("view_id",),
        ("list", "name"),
        "A list of the console that was saved.",
    ),
    Kind("Health", ("HealthView",), (), ("status",), "What works, and what does not."),
    Kind("QueueStatus", ("QueueStatusView",), (), ("running", "dead_letters"), "What waits, and who works."),
)
#: What the schemas inside of them are called, where it is not the schema's name without `View`.
INNER = {
    "CheckView": "HealthCheck",
    "FieldView": "CoveredField",
    "FieldsRunView": "CoveredRun",
    "MomentView": "Moment",
    "JobErrorView": "JobErrorRecord",
    "RequestView": "RequestRecord",
    "DatasetRunView": "DatasetRunRecord",
    "CrawlView": "CrawlOrder",
    "IncidentView": "AlertIncident",
    "SlotView": "ScheduleSlot",
    "ExitView": "ProcessExit",
    "EggView": "NodeEgg",
    "WaitingView": "WaitingJobs",
    "WorkersView": "Workers",
    "Expect": "ExpectRecord",
    "FetchOptions": "FetchOptionsRecord",
    "DatasetOrder": "DatasetOrderRecord",
    "ExportOrder": "ExportOrderRecord",
    "CrawlFilter": "EndpointFilterRecord",
    "AlertCondition": "AlertConditionRecord",
    "QuietHours": "QuietHoursRecord",
    "KeyAmounts": "BudgetAmounts",
    "KeyBudgetView": "KeyBudgetRecord",
}
#: Later releases have more of them, so programs cannot know all.
GROWING = ("ErrorCode", "EventType", "Reason", "WaitingReason")


class Records:
    """The text of the module, as far as it is written."""

    def __init__(self, schemas: dict[str, Schema]) -> None:
        self._schemas = schemas
        self._names = {schema: kind.name for kind in KINDS for schema in kind.schemas[:1]} | INNER
        self._aliases: dict[str, str] = {}
        self._classes: dict[str, str] = {}

    def text(self) -> str:
        for kind in KINDS:
            self._add(kind)
        aliases = "\n".join(self._aliases[name] for name in sorted(self._aliases))
        return "\n\n".join((f"{HEAD}\n{aliases}", *self._classes.values()))

    def _add(self, kind: Kind) -> None:
        self._classes[kind.name] = ""  # in its place, before what it is made of
        first, *others = (self._schemas[name]["properties"] for name in kind.schemas)
        lines = [
            f"class {kind.name}(Record):",
            *docstring(kind.doc or self._schemas[kind.schemas[0]].get("description")),
        ]
        for name, value in (("_names", kind.names), ("_shows", kind.shows)):
            lines += [f"    {name} = {value!r}"] if value else []
        known = [f"class {kind.whole}({kind.name}):", *docstring(f"A `{kind.name}` of which all is known.")]
        required = self._schemas[kind.schemas[0]].get("required", ())
        for field, schema in first.items():
            if field in kind.without:
                continue
            told = self._type(schema)
            may_lack = field in kind.unsure or field not in required or any(field not in other for other in others)
            doc = [*docstring(schema.get("description"))]
            lines += [f"    {field}: {told}{' | None' if may_lack and not _has_none(told) else ''}", *doc]
            if may_lack and field in required and not _has_none(told):
                known += [f"    {field}: {told}", *doc]
        self._classes[kind.name] = "\n".join([*lines, ""])
        if kind.whole:
            self._classes[kind.whole] = "\n".join([*known, ""])

    def _type(self, schema: Schema) -> str:
        """What it is in Python; what it is made of is added."""
        if "$ref" in schema:
            return self._referred(schema["$ref"].rpartition("/")[2])
        if choices := schema.get("anyOf") or schema.get("oneOf"):
            return self._union(choices)
        if "enum" in schema or "const" in schema:
            return f"Literal[{', '.join(map(repr, schema.get('enum', [schema.get('const')])))}]"
        if schema.get("type") == "array":
            return f"list[{self._type(schema.get('items', {}))}]"
        if schema.get("type") == "object":
            values = schema.get("additionalProperties")
            return f"dict[str, {self._type(values) if isinstance(values, dict) else 'Any'}]"
        return TIMES.get(schema.get("format", "")) or PLAIN.get(schema.get("type", ""), "Any")

    def _union(self, choices: list[Schema]) -> str:
        named = [one["$ref"].rpartition("/")[2] for one in choices if "$ref" in one]
        # an open enumeration: checkers know its values, and at run time it is any text
        if {"type": "string"} in choices and any("enum" in self._schemas[name] for name in named):
            choices = [one for one in choices if one != {"type": "string"}]
        return " | ".join(dict.fromkeys(self._type(one) for one in choices))

    def _referred(self, name: str) -> str:
        schema = self._schemas[name]
        if name in GROWING:
            return "str"
        if "enum" in schema:
            values = ", ".join(map(repr, schema["enum"]))
            self._aliases[name] = f"{name} = Literal[{values}]\n"
            return name
        if "properties" not in schema:
            return self._type(schema)
        called = self._names.get(name, name.removesuffix("View"))
        if called not in self._classes:
            known = next((kind for kind in KINDS if kind.name == called), None)
            self._add(known or Kind(called, (name,)))
        return called


def _has_none(told: str) -> bool:
    return told == "Any" or told.endswith("None")


def made(document: Schema) -> str:
    """The text of the module."""
    text = Records(document["components"]["schemas"]).text()
    return formatted(text)


if __name__ == "__main__":
    TARGET.write_text(made(create_app(Settings()).openapi()))
