"""The table of supported features, collected from the modules that implement them. Everything else is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from embedded.mongo.commands import NAMES
from embedded.mongo.login import COMMANDS as LOGIN
from embedded.mongo.match import LOGICAL, OPERATORS
from embedded.mongo.reads import STAGES
from embedded.mongo.update import MODIFIERS

SUPPORTED: Mapping[str, Iterable[str]] = {
    "commands": (*NAMES, *LOGIN),
    "query operators": (*LOGICAL, *OPERATORS, "$regex", "$options", "$comment"),
    "update operators": (*MODIFIERS, "$each", "$slice"),
    "projection": ("1", "0", "$slice"),
    "pipeline stages, as `count_documents` sends them": STAGES,
    "index options": ("unique", "sparse", "partialFilterExpression"),
}


def as_markdown() -> str:
    """A table row for each kind, for the reference page."""
    return "\n".join(
        f"| {kind} | {' '.join(f'`{name}`' for name in dict.fromkeys(names))} |" for kind, names in SUPPORTED.items()
    )


if __name__ == "__main__":
    print(as_markdown())  # noqa: T201 - the text goes into the reference page
