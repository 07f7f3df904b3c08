"""Workers and beats are killed wherever a hold is taken, waited for or freed. There are never too many holds of a
resource, and none is left.
"""

from __future__ import annotations

from pathlib import Path

from dispatch_story import check_each_ran, prepare
from killed import killed_everywhere
from node_double import NodeDouble
from stores import embedded_mongo

from gateway.stores.mongo import connect

POINTS = (
    *("holds.take", "holds.free", "holds.forget", "jobs.block", "jobs.unblock", "jobs.assign", "jobs.requeue"),
    *("jobs.mark_running", "jobs.retry", "jobs.finish", "jobs.settle", "jobs.use_up"),
)


def test_whoever_is_killed_with_or_before_it_all_run_in_the_end_and_never_too_many(
    tmp_path: Path, redis_url: str, double: NodeDouble
) -> None:
    with embedded_mongo(tmp_path / "mongo") as uri:
        database = connect(uri)
        made = prepare(database)
        story = "from dispatch_story import tell"
        killed_everywhere(tmp_path, POINTS, story, uri, redis_url, double.url, beside=__file__)
        check_each_ran(database, made)
        database.client.close()
