"""A worker that folds runs is killed before and after each write. The next one goes on; readers see no difference."""

from __future__ import annotations

from pathlib import Path

from dataset_story import check, prepare
from killed import killed_everywhere
from stores import embedded_mongo

from gateway.stores.mongo import connect

POINTS = (
    *("datasets.insert", "datasets.claim", "datasets.renew", "datasets.publish", "datasets.applied"),
    *("datasets.change", "datasets.learn_from", "datasets.raise_floor", "datasets.note_project"),
    *("dataset_runs.drop_figures", "dataset_runs.forget"),
    *("datasets.release", "datasets.mark_deleted", "datasets.remove"),
    *("dataset_runs.save", "dataset_runs.change", "dataset_runs.supersede", "dataset_runs.delete"),
    *("dataset_changes.write", "dataset_changes.delete_others", "dataset_changes.delete"),
    *("dataset_records.apply", "dataset_records.rehash", "dataset_records.delete"),
    *("folds.done", "folds.again", "folds.wait", "folds.release", "folds.forget"),
)


def test_whoever_is_killed_in_between_the_changes_are_the_same(tmp_path: Path) -> None:
    with embedded_mongo(tmp_path / "mongo") as uri:
        database = connect(uri)
        prepare(database)
        killed_everywhere(tmp_path, POINTS, "from dataset_story import tell", uri, beside=__file__)
        check(database)
        database.client.close()
