"""An egg's whole life. Each process that handles it is killed wherever it writes; the next one finishes its work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from egg_life import check_it_is_gone, prepare
from killed import killed_everywhere
from node_double import NodeDouble, node_double
from stores import embedded_mongo

from gateway.stores.mongo import connect

POINTS = (
    *("eggs.write", "eggs.put", "eggs.describe", "eggs.delete", "eggs.discard", "eggs.lose", "eggs.sweep"),
    *("egg_copies.agree", "egg_copies.mark_outdated", "egg_copies.gone", "egg_copies.begin", "egg_copies.brought"),
    *("egg_copies.failed", "egg_copies.forget", "egg_copies.outdate", "egg_needs.tell", "versions.change"),
    "revision.increase",
)


@pytest.fixture
def refusing() -> Iterator[NodeDouble]:
    with node_double() as double:
        double.mode = "refuse"
        yield double


def test_whoever_is_killed_in_between_the_egg_comes_and_goes_as_it_should(
    tmp_path: Path, redis_url: str, double: NodeDouble, refusing: NodeDouble
) -> None:
    with embedded_mongo(tmp_path / "mongo") as uri:
        database: Any = connect(uri)
        prepare(database, tmp_path, double.url, refusing.url)
        story = "from egg_life import live as tell"
        killed_everywhere(tmp_path, POINTS, story, uri, redis_url, str(tmp_path), beside=__file__)
        check_it_is_gone(database)
        database.client.close()
