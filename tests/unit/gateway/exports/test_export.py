from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from gateway.errors import ExportPlaceError, ExtraMissingError
from gateway.exports.export import ExportOrder, ExportPlaces, Exports, ExportWhat
from gateway.items import table_files


def order(to: str, form: str = "parquet", **more: str) -> ExportOrder:
    return ExportOrder.model_validate({"to": to, "format": form, **more})


@pytest.mark.parametrize("to", ["s3://lake/prices/day=1", "file:///srv/exports", "prices", "a/b.c/", "s3://lake"])
def test_a_place_is_a_bucket_or_a_folder(to: str) -> None:
    found = order(to)
    assert (found.to, found.what, found.each) == (to.rstrip("/"), ExportWhat.SNAPSHOT, "run")


@pytest.mark.parametrize(
    "to",
    [
        *(
            "../up",
            "a/../b",
            "/absolute",
            "file://relative",
            "file:///a/../b",
            "file:////a",
            ".hidden",
            "a//b",
            "a b",
        ),
        *(
            "s3://",
            "s3://lake/../other",
            "s3://key:secret@lake/x",
            "s3://lake/x?y=1",
            "s3://lake/x#y",
            "ftp://host/x",
        ),
        *("http://169.254.169.254/x", "s3://lake/%2e%2e/x", "a\nb", "a\x00b", "~other", "", "S3://lake/x"),
    ],
)
def test_no_other_place_is_one(to: str) -> None:
    with pytest.raises(ValidationError):
        order(to)


def test_no_two_exports_write_the_same_to_the_same_place() -> None:
    exports = TypeAdapter[Exports](Exports)
    one = {"to": "prices", "format": "csv"}
    assert len(exports.validate_python([one, {**one, "what": "changes"}, {**one, "to": "more"}])) == 3
    with pytest.raises(ValidationError):
        exports.validate_python([one, {**one, "format": "parquet"}])
    with pytest.raises(ValidationError):
        exports.validate_python([{**one, "to": str(number)} for number in range(6)])


PLACES = ExportPlaces(("file:///srv/exports/{user}", "s3://lake/{user}", "s3://open"))


@pytest.mark.parametrize(
    ("to", "url"),
    [
        ("prices", "file:///srv/exports/ann/prices"),
        ("file:///srv/exports/ann/x", "file:///srv/exports/ann/x"),
        ("s3://lake/ann", "s3://lake/ann"),
        ("s3://open/any/where", "s3://open/any/where"),
    ],
)
def test_what_is_below_a_root_is_allowed(to: str, url: str) -> None:
    assert PLACES.url("ann", order(to).to) == url


@pytest.mark.parametrize(
    "to", ["s3://lake", "s3://lake/bob/x", "s3://lake/annika", "s3://opened", "file:///srv/exports", "file:///etc"]
)
def test_nothing_else_is(to: str) -> None:
    with pytest.raises(ExportPlaceError) as refused:
        PLACES.require("ann", (order("ok"), order(to)))
    assert (refused.value.code, refused.value.field) == ("export_place", "exports.1.to")


def test_a_users_name_leads_nowhere_else() -> None:
    urls = {PLACES.url(user, "x") for user in ("a/../bob", "a b", "..", "bob", "{user}", "\ud800")}
    assert len(urls) == 6
    assert all(url.removeprefix("file:///srv/exports/").count("/") == 1 for url in urls)


def test_without_a_root_there_are_no_exports() -> None:
    with pytest.raises(ExportPlaceError, match="EXPORT_TO"):
        ExportPlaces(()).require("ann", (order("prices"),))


def test_a_format_that_cannot_be_written_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "find_spec", lambda _: None)
    with pytest.raises(ExtraMissingError) as refused:
        PLACES.require("ann", (order("x"),))
    assert refused.value.field == "exports.0.format"
