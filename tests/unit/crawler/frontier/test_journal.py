"""The frontier file, and what of a crawl's items counts in the attempt that goes on."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from crawler.frontier.journal import (
    OTHER,
    START,
    FrontierState,
    KeptRequest,
    RequestMark,
    describe,
    frame,
    frames,
    read_frontier,
    take_over_items,
)

A, B = (
    KeptRequest(1, START, "aa", is_filtered=True, data=b"a", mark="-"),
    KeptRequest(2, 1, "bb", is_filtered=False, data=b"b", mark="m"),
)


class Folder:
    """An attempt's, into which frames and items are written in their order."""

    def __init__(self, path: Path, snapshot: bytes) -> None:
        self.path = path
        path.mkdir()
        (path / "items.jsonl").touch()
        (path / "frontier").write_bytes(snapshot)

    def write(self, *items: str, new: list[KeptRequest] | None = None, **head: Any) -> None:
        lines = "".join(f"{json.dumps(item)}\n" for item in items)
        whole = {
            "new": [describe(request) for request in new or []],
            "marks": [request.mark for request in new or []],
            "end": (self.path / "items.jsonl").stat().st_size + len(lines),
            "facts": {"report": {"items": 0}},
            **head,
        }
        with (self.path / "frontier").open("ab") as file:
            file.write(frame(whole, [request.data for request in new or []]))
        with (self.path / "items.jsonl").open("a") as file:
            file.write(lines)

    def taken_over(self, state: FrontierState) -> list[str]:
        target = self.path.with_name("target.jsonl")
        take_over_items(self.path / "items.jsonl", target, state)
        return [json.loads(line) for line in target.read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "attempt", FrontierState().snapshot())


def test_items_of_requests_that_are_not_done_do_not_count(folder: Folder) -> None:
    folder.write(new=[A, B])
    folder.write("a1", "a2", gave={"1": 2})
    folder.write("b1", gave={"2": 1})
    folder.write("other")
    folder.write("b2", done=2)
    folder.write("a3", gave={"1": 3}, facts={"report": {"items": 6}})
    state = read_frontier(folder.path)
    assert folder.taken_over(state) == ["b1", "other", "b2"]
    assert state.facts["report"]["items"] == 3
    assert state.end == (folder.path.with_name("target.jsonl")).stat().st_size
    assert list(state.pending) == [1]


def test_what_start_gave_counts_once_all_of_it_is_through_the_pipelines(folder: Folder) -> None:
    folder.write("s1", gave={"0": 1})
    folder.write("s2", gave={"0": 2}, facts={"started": True})
    assert folder.taken_over(read_frontier(folder.path)) == []
    folder.write(facts={"started": True, "start_done": True})
    state = read_frontier(folder.path)
    assert folder.taken_over(state) == ["s1", "s2"]
    # release 0.2.0 leaves as many out
    [(head, _)] = frames(io.BytesIO(state.snapshot()))
    assert head["gave"] == {"0": 2}


def test_a_snapshot_says_the_same_as_the_frames(folder: Folder) -> None:
    folder.write(new=[A, B, KeptRequest(3, OTHER, "cc", is_filtered=False, data=b"c", mark="n")])
    folder.write("b", done=2)
    state = read_frontier(folder.path)
    (folder.path / "frontier").write_bytes(state.snapshot())
    again = read_frontier(folder.path)
    assert again.children == state.children == {START: [RequestMark("aa", "-")], 1: [RequestMark("bb", "m")]}
    assert again.pending == state.pending
    assert (again.end, again.next_id, again.seen) == (state.end, 4, {"aa"})


def test_a_file_of_release_0_2_0_is_read(folder: Folder) -> None:
    """Its frames say where items are, as ours; its snapshot only how many."""
    state = FrontierState()
    state.apply({"new": [describe(A), describe(B)], "end": 0, "facts": {}}, b"ab")
    old = {
        "new": [describe(A), describe(B)],
        "seen": ["aa"],
        "children": {"1": ["bb"]},
        "gave": {"1": 2},
        "next": 3,
        "state": 0,
        "jar": 0,
        "end": 0,
        "requests": 0,
        "facts": {},
        "samples": {},
    }
    (folder.path / "frontier").write_bytes(frame(old, [b"ab"]))
    folder.write("a3", gave={"1": 3})
    state = read_frontier(folder.path)
    assert state.given == {1: 2}
    assert state.children[1] == [RequestMark("bb", "")]
    assert folder.taken_over(state) == []
