"""A field of a crawl is declared once. Where it has a control, an option or a place of its own, none is forgotten."""

from __future__ import annotations

import dataclasses

import pytest
from unit.house.sources import ROOT

import gateway.cli.crawl
from crawler.orders import AttemptOrder
from gateway.contract.crawl import SPEC_FIELDS
from gateway.contract.records import NodeSpec
from gateway.jobs.job import ASKED_FIELDS, NUMBERS, ORDER_FIELDS
from gateway.web.schemas.crawl import CrawlRequest
from gateway.web.schemas.schedule import CrawlView, ScheduleUpdate

TEMPLATES = ROOT / "gateway/console/templates"
#: A request has one webhook, a schedule may have several.
ONE_WEBHOOK = {"webhooks": "webhook_url"}
#: What Scrapyd and the launcher use up, so that a spider's process does not need it. Variables are its environment.
#: Items become part of a dataset once the process has ended.
OF_THE_NODE = {
    *("dataset", "version", "replaced", "timeout", "env", "not_after", "instance", "has_env", "frontier_since")
}


def spelled(name: str) -> str:
    return ONE_WEBHOOK.get(name, name)


def test_a_request_an_edit_and_a_view_have_every_field_that_may_be_asked_for() -> None:
    assert {spelled(name) for name in ASKED_FIELDS} <= CrawlRequest.model_fields.keys()
    assert ASKED_FIELDS.keys() <= ScheduleUpdate.model_fields.keys()
    assert ASKED_FIELDS.keys() == CrawlView.model_fields.keys()


def test_a_spiders_process_reads_every_field_of_a_spec_that_its_node_does_not_use_up() -> None:
    read = {one.name for one in dataclasses.fields(AttemptOrder)}
    assert read == NodeSpec.model_fields.keys() - OF_THE_NODE


@pytest.mark.parametrize(("form", "names"), [("crawl/new.html", ONE_WEBHOOK), ("schedules/edit.html", {})])
def test_both_forms_have_a_control_for_every_field(form: str, names: dict[str, str]) -> None:
    text = (TEMPLATES / form).read_text()
    assert "in numbers.items()" in text
    others = {names.get(name, name) for name in ASKED_FIELDS.keys() - NUMBERS.keys()}
    # an object has a control for each of its own fields
    assert {name for name in others if f'"{name}"' not in text and f'"{name}.' not in text} == set()


def test_the_command_line_has_an_option_for_every_field_but_three() -> None:
    options = {option.name for option in gateway.cli.crawl.crawl.__signature__.parameters.values()}  # type: ignore[attr-defined]
    assert ASKED_FIELDS.keys() - options == {"start_urls", "fetch", "webhooks"}


def test_the_same_on_the_command_line_names_every_field_that_has_an_option() -> None:
    script = (ROOT / "gateway/console/static/js/same-as.js").read_text()
    # the form hands over the options of the numbers
    others = ASKED_FIELDS.keys() - NUMBERS.keys() - {"fetch", "webhooks"}
    assert {name for name in others if f'"{name}"' not in script and f"{name}:" not in script} == set()


def test_a_request_says_all_but_what_comes_with_a_site_or_a_version() -> None:
    assert SPEC_FIELDS.keys() - ASKED_FIELDS.keys() == {"replaced", "site", "site_rate_limit"}
    assert ORDER_FIELDS.keys() <= ASKED_FIELDS.keys()
