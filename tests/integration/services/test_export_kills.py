"""An export whose writer is killed at each write, or in the middle of a file: the next writer finishes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import run_export_story
from export_story import ROWS, check_no_success_is_early, export
from killed import killed_everywhere
from stores import ROOT, embedded_mongo

from gateway.stores.mongo import connect

POINTS = (
    "exports.put",
    "files.put",
    "exports.move",
    "files.move",
    "exports.succeed",
    "exports.clear",
    "files.remove",
)
STORY = "from export_story import tell"
STOPS = "import sys; from export_story import stop_in_the_middle; stop_in_the_middle(sys.argv[1])"


def check_it_is_whole(folder: Path) -> None:
    found = sorted(path.name for path in folder.rglob("*") if path.is_file())
    assert found == ["_SUCCESS", "snapshot.parquet"]
    check_no_success_is_early(folder)
    assert pq.read_table(next(folder.rglob("*.parquet")))["n"].to_pylist() == [*range(ROWS)]


def test_whoever_is_killed_in_between_the_export_is_whole_in_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    killed_everywhere(tmp_path, POINTS, STORY, str(folder), beside=__file__)
    check_it_is_whole(folder)


RUN_POINTS = (
    "dataset_runs.ask_exports",
    "dataset_runs.claim_exports",
    "dataset_runs.renew_exports",
    "dataset_runs.note_exports",
)


def test_whoever_is_killed_in_between_the_runs_of_a_dataset_are_exported_once(tmp_path: Path) -> None:
    with embedded_mongo(tmp_path / "mongo") as uri:
        database = connect(uri)
        run_export_story.prepare(database)
        story = "from run_export_story import tell"
        killed_everywhere(tmp_path, RUN_POINTS, story, uri, str(tmp_path / "lake"), beside=__file__)
        run_export_story.check(database, tmp_path / "lake")
        database.client.close()


def test_a_writer_that_is_killed_in_the_middle_of_a_file_leaves_no_success(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    paths = os.pathsep.join((str(Path(__file__).parent), str(ROOT)))
    process = subprocess.Popen(
        [sys.executable, "-c", STOPS, str(folder)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in the middle\n"
        process.kill()
    # part of the export was written, but not where readers look
    assert [path for path in folder.rglob("*") if path.is_file()]
    assert {path.name for path in folder.iterdir()} == {"out"}
    assert {path.name for path in (folder / "out").iterdir()} == {"_temporary"}
    done = export(folder, "jsonl")
    found = sorted(path.name for path in folder.rglob("*") if path.is_file())
    assert (found, done.rows) == (["_SUCCESS", "snapshot.jsonl"], ROWS)
    check_no_success_is_early(folder)
