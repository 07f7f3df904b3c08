"""A log is counted, searched and read in parts, over HTTP: stored lines, and lines that only Redis has yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import redis
from integration.event_stream.stage import Play, lines
from pymongo.database import Database

from gateway.contract.log_line import HEADLESS_LEVEL, split_entries
from gateway.logs.store import LogChunk, LogStore, count_lines
from gateway.settings import Settings

HEAD = b"2027-06-01T09:00:01.250Z [scrapy.core.scraper] ERROR: Spider error processing <GET https://example.com/>\n"
TRACEBACK = HEAD + b"Traceback (most recent call last):\n  File parse\nValueError: no \xe2\x82\xac price\n"


@pytest.fixture
def play(database: Database[dict[str, Any]], settings: Settings) -> Iterator[Play]:
    with redis.Redis.from_url(settings.redis_location) as client:
        yield Play(database, client)


Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(gateway: httpx2.Client, play: Play) -> Ask:
    def get(what: str, **query: Any) -> dict[str, Any]:
        answer = gateway.get(
            f"/jobs/{play.id}/logs/{what}", params={name.rstrip("_"): value for name, value in query.items()}
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    return get


def perform(play: Play) -> None:
    """Two attempts: the first with an error in its second chunk, the second with lines that only Redis has."""
    play.start()
    play.write(lines(1, 300))
    play.write(TRACEBACK)
    play.write(lines(301, 400))
    play.retry()
    play.start()
    play.write(lines(1, 10))
    play.write(lines(11, 14, "WARNING"), mongodb=False)


def test_lines_are_counted_by_level_and_logger(play: Play, ask: Ask) -> None:
    perform(play)
    index = ask("index")
    assert index["run"] == play.id
    assert (index["lines"], index["all_lines"], index["levels"]) == (
        418,
        418,
        {"INFO": 410, "ERROR": 4, "WARNING": 4},
    )
    assert index["loggers"] == [{"name": "seo", "lines": 414}, {"name": "scrapy.core.scraper", "lines": 4}]
    assert [segment[0] for segment in index["segments"]] == [1, 1, 1, 2, 2]
    assert index["end"] == play.event_ids()[-1]
    errors = ask("index", level="ERROR")
    assert (errors["lines"], errors["all_lines"], [segment[3] for segment in errors["segments"]]) == (
        4,
        418,
        [0, 4, 0, 0, 0],
    )
    assert ask("index", logger="scrapy.core.scraper", level="INFO")["lines"] == 4


def test_counts_that_were_stored_are_those_that_are_made_from_the_lines(play: Play, ask: Ask) -> None:
    perform(play)
    without = ask("index")
    store = LogStore(play.database)
    for chunk in store.read(play.id, 1, 0):
        counts = count_lines(split_entries(chunk.data, chunk.start, HEADLESS_LEVEL)[0], None)
        play.database["logs"].delete_one({"_id": f"{play.id}:0001:{chunk.start:015d}"})
        store.append(LogChunk(*chunk[:6], None, counts))
    assert store.read(play.id, 1, 0)[0].lines == {("seo", "INFO"): 300}
    assert ask("index") == without


def test_text_is_found_in_the_whole_log(play: Play, ask: Ask) -> None:
    perform(play)
    ids = play.event_ids()
    found = ask("search", q="LINE 7")
    expected = [ids[number] for number in (6, *range(69, 79), 404 + 6)]
    assert (found["lines"], found["positions"]) == (12, expected)
    assert sum(segment[3] for segment in found["segments"]) == 12
    assert ask("search", q="line 7", limit=2)["positions"] == expected[:2]
    # lines that only Redis has
    assert ask("search", q="line 14")["positions"][-1] == ids[-1]
    assert ask("search", q="line", level="WARNING")["lines"] == 4
    assert ask("search", q="€ PRICE")["positions"] == [ids[303]]
    assert ask("search", q="nowhere") | {"segments": []} == {
        "run": play.id, "lines": 0, "end": ids[-1], "segments": [], "positions": [], "next": None,
    }  # fmt: skip


def all_answers(ask: Ask, what: str, **query: Any) -> list[dict[str, Any]]:
    answers = [ask(what, **query)]
    while following := answers[-1].get("next"):
        answers.append(ask(what, **query | {"from_": following}))
    return answers


@pytest.mark.parametrize("query", [{"q": "LINE 7"}, {"q": "€ price"}, {"q": "line", "level": "WARNING"}])
def test_a_search_whose_time_is_over_goes_on_to_the_same_result(
    play: Play, ask: Ask, monkeypatch: pytest.MonkeyPatch, query: dict[str, str]
) -> None:
    perform(play)
    found, read = ask("search", **query), ask("lines", **query)
    monkeypatch.setattr("gateway.web.routes.log_search._SEARCH_SECONDS", 0.0)
    answers = all_answers(ask, "search", **query)
    assert len(answers) > 2
    assert sum(answer["lines"] for answer in answers) == found["lines"] > 0
    assert [place for answer in answers for place in answer["positions"]] == found["positions"]
    assert [segment for answer in answers for segment in answer["segments"]] == found["segments"]
    assert answers[-1]["end"] == found["end"]
    pages = all_answers(ask, "lines", **query)
    assert len(pages) > 2
    assert [line for page in pages for line in page["lines"]] == read["lines"] != []


def test_a_part_of_the_log_is_searched(play: Play, ask: Ask) -> None:
    perform(play)
    ids = play.event_ids()
    part = ask("search", q="line", from_=ids[99], to=ids[109])
    assert (part["lines"], part["positions"]) == (10, ids[100:110])
    assert ask("search", level="ERROR", limit=1)["positions"] == [ids[300]]
    assert ask("search", level="ERROR", from_=ids[301])["lines"] == 2


def test_lines_are_read_from_anywhere(play: Play, ask: Ask) -> None:
    perform(play)
    ids = play.event_ids()
    page = ask("lines", from_=ids[299], limit=4)
    assert [line["id"] for line in page["lines"]] == ids[300:304]
    assert page["lines"][0]["logger"] == page["lines"][3]["logger"] == "scrapy.core.scraper"
    assert page["lines"][3] == {
        "id": ids[303], "start": int(ids[302][2:]), "level": "ERROR", "logger": "scrapy.core.scraper",
        "msg": "ValueError: no € price", "cont": True,
    }  # fmt: skip
    assert page["next"] == ids[303]
    rest = ask("lines", from_=ids[400], limit=1000)
    assert [line["id"] for line in rest["lines"]] == ids[401:]
    assert rest.get("next") is None
    assert [line["id"] for line in ask("lines", to=ids[4])["lines"]] == ids[:5]


@pytest.mark.parametrize(
    ("number", "query", "index"),
    [
        (1, {}, 0),
        (302, {}, 301),
        (405, {}, 404),
        (417, {}, 416),
        (2, {"level": "ERROR"}, 301),
        (5, {"level": "WARNING"}, 414),
    ],
)
def test_a_line_is_found_by_its_number(play: Play, ask: Ask, number: int, query: dict[str, str], index: int) -> None:
    perform(play)
    assert ask("lines", line=number, limit=1, **query)["lines"][0]["id"] == play.event_ids()[index]


def test_there_is_nothing_behind_the_last_line(play: Play, ask: Ask) -> None:
    assert ask("lines")["lines"] == ask("search", q="x")["positions"] == ask("index")["segments"] == []
    perform(play)
    assert ask("lines", line=419)["lines"] == ask("lines", from_=play.event_ids()[-1])["lines"] == []


def test_a_long_message_is_cut_unless_it_is_asked_for(play: Play, ask: Ask) -> None:
    play.start()
    play.write(b"x" * 300_000 + b"\n")
    cut = ask("lines", max_length=10)["lines"][0]
    assert (cut["msg"], cut["length"]) == ("x" * 10, 300_000)
    assert len(ask("lines", max_length=1 << 20)["lines"][0]["msg"]) == 300_000


def test_a_long_log_has_an_index_of_bounded_length(play: Play, ask: Ask) -> None:
    play.start()
    documents = [
        {"_id": f"{play.id}:0001:{number * 10:015d}", "end": number * 10 + 10, "counts": [["a", "INFO", 1]]}
        for number in range(2100)
    ]
    play.database["logs"].insert_many(documents)
    index = ask("index")
    assert (index["lines"], len(index["segments"]), index["segments"][0]) == (2100, 1050, [1, 0, 20, 2])


@pytest.mark.parametrize(
    ("what", "query", "field"),
    [
        ("search", {"q": "x" * 201}, "q"),
        ("search", {"q": "a\nb"}, "q"),
        ("search", {"from": "here"}, "from"),
        ("index", {"level": "LOUD"}, "level"),
        ("lines", {"line": 3, "from": "1-0"}, "line"),
        ("lines", {"limit": 0}, "limit"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(
    gateway: httpx2.Client, play: Play, what: str, query: dict[str, Any], field: str
) -> None:
    answer = gateway.get(f"/jobs/{play.id}/logs/{what}", params=query)
    assert answer.status_code == 422
    assert field in str(answer.json()["error"]["detail"])
