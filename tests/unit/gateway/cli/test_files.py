"""`discoverybot files`: lists, and fetches, whatever their names are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unit.gateway.cli.conftest import JOB, Answer, Run, StandIn

ODD = "a b\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe"
FILE: dict[str, Any] = {
    "name": "images/full/1.jpg", "size": 48213, "type": "image/jpeg", "sha256": "00", "attempt": 2,
    "modified_at": "2027-06-01T09:00:00.000Z", "stored_at": "2027-06-01T09:00:00.000Z", "url": "/",
}  # fmt: skip


def page(*names: str, following: str | None = None, pending: bool = False) -> Answer:
    listed = [{**FILE, "name": name} for name in names]
    return Answer(200, {"files": listed, "next": following, "pending": pending, "removed_at": None})


def test_files_of_all_pages_are_listed_and_no_name_turns_the_line(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET /jobs/{JOB}/files", page("images/full/1.jpg", following="images/full/1.jpg"), page(ODD))
    done = run("files", JOB)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split()[:4] == ["images/full/1.jpg", "48213", "image/jpeg", "2"]
    assert "\\u202egnp.exe" in done.stdout
    assert gateway.asked(f"/jobs/{JOB}/files")[1].query == "limit=1000&after=images%2Ffull%2F1.jpg"


def test_it_says_whether_more_may_come(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET /jobs/{JOB}/files", page(pending=True))
    assert "more may come" in run("files", JOB).stderr


def test_the_list_is_json_on_request(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET /jobs/{JOB}/files", page("a"))
    assert json.loads(run("files", JOB, "--json").stdout)["files"][0]["name"] == "a"


def test_a_file_goes_to_where_it_is_told_to(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    gateway.says(f"GET /jobs/{JOB}/files/images/full/1.jpg", Answer(200, b"\xff\xd8", content_type="image/jpeg"))
    done = run("files", JOB, "images/full/1.jpg", "--attempt", "2", "-o", str(tmp_path / "x.jpg"))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert (tmp_path / "x.jpg").read_bytes() == b"\xff\xd8"
    assert gateway.asked(f"/jobs/{JOB}/files/images/full/1.jpg")[0].query == "attempt=2"


def test_a_file_that_breaks_off_leaves_nothing(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    gateway.says(f"GET /jobs/{JOB}/files/a", Answer(200, b"half", broken=True, content_type="image/jpeg"))
    done = run("files", JOB, "a", "-o", str(tmp_path / "a"))
    assert done.returncode == 1
    assert [*tmp_path.iterdir()] == []
