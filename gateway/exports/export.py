"""Exports: files with the rows of a run, in a folder or a bucket. The operator names the places that are allowed.

Datasets and schedules have a field of the type `Exports`.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from typing import Annotated, Literal

from attrs import frozen
from pydantic import AfterValidator, BaseModel, Field

from gateway.errors import ExportPlaceError
from gateway.items.table_files import require_format

#: Maximum number of exports of one dataset or schedule.
MAX_EXPORTS = 5
#: Names that every file system, bucket and shell accepts unchanged. They cannot begin with a dot, so `..` is none.
_NAME = r"[A-Za-z0-9][A-Za-z0-9._=-]{0,99}"
_PLACE = re.compile(rf"(s3://|file:///)?{_NAME}(/{_NAME})*")
_PLAIN = re.compile(_NAME)
#: Stands for the user, in the operator's setting.
_USER = "{user}"


def _place(text: str) -> str:
    found = text.strip().rstrip("/")
    if not _PLACE.fullmatch(found):
        raise ValueError(
            "must be s3://bucket/prefix, file:///folder or the name of a folder; each part begins with a letter or a "
            "digit and has letters, digits and . _ = -"
        )
    return found


class ExportWhat(StrEnum):
    """What is exported: all items, or what a run has changed."""

    #: All items after the run: those of the dataset, or of the run if there is no dataset.
    SNAPSHOT = "snapshot"
    #: The changes that the run has made in the dataset.
    CHANGES = "changes"


class ExportOrder(BaseModel, frozen=True, extra="forbid"):
    """One file of each run."""

    to: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_place)] = Field(
        description="`s3://bucket/prefix`, `file:///folder`, or a folder below the first of `EXPORT_TO`.",
        examples=["s3://lake/prices"],
    )
    format: Literal["jsonl", "csv", "xlsx", "parquet"]
    what: ExportWhat = ExportWhat.SNAPSHOT
    each: Literal["run"] = Field(default="run", description="When it is written: after each run.")


def _apart(orders: tuple[ExportOrder, ...]) -> tuple[ExportOrder, ...]:
    if len({(order.to, order.what) for order in orders}) < len(orders):
        raise ValueError("two of them write the same to the same place")
    return orders


#: A field of what can have exports.
Exports = Annotated[tuple[ExportOrder, ...], Field(max_length=MAX_EXPORTS), AfterValidator(_apart)]


@frozen
class ExportPlaces:
    """Where exports may be written. Whoever may make a schedule has the credentials of these places through it, so it
    is the operator who names them.
    """

    #: URLs, `s3://…` or `file:///…`; `{user}` in them is replaced by the user's name. Empty if there are no exports.
    roots: tuple[str, ...]

    def require(self, user_id: str, orders: Exports, field: str = "exports") -> None:
        """Raises `ExportPlaceError` for a place that is not allowed, and `ExtraMissingError` for a format that cannot
        be written here. `field` is the request field that has the orders; the error names a place in it, such as
        `exports.0.to`.
        """
        for number, order in enumerate(orders):
            self.url(user_id, order.to, f"{field}.{number}.to")
            require_format(order.format, f"{field}.{number}.format")

    def url(self, user_id: str, to: str, field: str = "to") -> str:
        """The URL of this place. Raises `ExportPlaceError` if it is not below one of the roots."""
        roots = [root.replace(_USER, _folder_of(user_id)) for root in self.roots]
        if not roots:
            raise ExportPlaceError(field, "exports are off here: EXPORT_TO names no place to write to")
        if "://" not in to:
            return f"{roots[0]}/{to}"
        if not any(to == root or to.startswith(f"{root}/") for root in roots):
            raise ExportPlaceError(field, "is not below a place where exports may be written (EXPORT_TO)")
        return to


def _folder_of(user_id: str) -> str:
    """The user's name as the name of a folder; no two users have the same."""
    if _PLAIN.fullmatch(user_id):
        return user_id
    return f"~{hashlib.sha256(user_id.encode('utf-8', 'replace')).hexdigest()}"
