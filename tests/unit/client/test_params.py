"""What the methods of the client take and return is what the API's description says."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from datetime import datetime

import pytest
from described import document
from unit.house.sources import ROOT

from discoverybot_client import Client, Dataset, Job
from discoverybot_client.rules import given, sent


@pytest.mark.parametrize("name", ["client_params", "client_answers", "client_events"])
def test_types_are_those_of_the_description(name: str) -> None:
    made = runpy.run_path(str(ROOT / f".ci/{name}.py"))
    assert made["TARGET"].read_text() == made["made"](document()), "make blocking-client"


def test_times_are_sent_with_their_offset() -> None:
    moment = datetime.fromisoformat("2027-06-01T09:00:00+02:00")
    assert given(since=moment, until=None) == {"since": "2027-06-01T09:00:00+02:00"}
    assert sent({"ends_at": moment, "name": None}) == {"ends_at": "2027-06-01T09:00:00+02:00", "name": None}


def test_a_time_without_an_offset_is_refused_by_name() -> None:
    naive = datetime.fromisoformat("2027-06-01T09:00:00")
    with Client("http://127.0.0.1:9") as client:
        with pytest.raises(ValueError, match=r"^schedule_at: 2027-06-01 09:00:00 has no offset"):
            client.start_crawl("https://example.com", spider="seo", schedule_at=naive)
        with pytest.raises(ValueError, match=r"^since: "):
            next(iter(client.jobs(since=naive)))


@pytest.mark.parametrize(
    "ask",
    [
        lambda job, _: list(job.items(fields="url")),
        lambda job, _: job.export("items.csv", "csv", fields="url"),
        lambda job, _: job.differences(key="url"),
        lambda _, dataset: dataset.export("items.csv", "csv", fields="url"),
        lambda _, dataset: dataset.export_changes("changes.csv", "csv", fields="url"),
    ],
)
def test_a_text_is_no_list_of_names(ask: Callable[[Job, Dataset], object]) -> None:
    with Client("http://127.0.0.1:9", retries=0) as client:
        job, dataset = (
            Job({"job_id": "5f0c"}, client._transport),
            Dataset({"name": "shop", "user_id": "ada"}, client._transport),
        )
        with pytest.raises(TypeError, match=r"^(fields|key): pass a list of names, as in \1=\['url'\]$"):
            ask(job, dataset)


def test_a_list_of_urls_is_refused() -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(TypeError, match="pass URLs one by one"):
        client.start_crawl(["https://example.com"], spider="seo")  # type: ignore[arg-type]
