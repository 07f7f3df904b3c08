"""Who is right where a node has another egg than the one that is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.contract.crawl import Egg
from gateway.projects.eggs import Content, EggOnNode, KeptEgg, Standing, is_file_name, standing

EGG = Egg("shop", "1.0")
KEPT_AT = datetime(2027, 6, 1, tzinfo=UTC)
BEFORE, AFTER = KEPT_AT - timedelta(hours=1), KEPT_AT + timedelta(hours=1)
KEPT = KeptEgg(EGG, Content("id", "new", 3), KEPT_AT)
DELETED = KeptEgg(EGG, None, KEPT_AT)


@pytest.mark.parametrize(
    ("sha256", "deployed_at", "kept", "known", "expected"),
    [
        ("new", BEFORE, KEPT, (), Standing.AGREED),
        ("new", BEFORE, None, (), Standing.NEWER),
        ("other", AFTER, KEPT, ("old",), Standing.NEWER),
        # clocks are not asked where it is known what the node had
        ("other", BEFORE, KEPT, ("old",), Standing.NEWER),
        ("old", AFTER, KEPT, ("old",), Standing.REPLACED),
        ("old", AFTER, DELETED, ("old",), Standing.DELETED),
        ("other", AFTER, DELETED, ("old",), Standing.NEWER),
        # nothing is known of the node: by the file's age
        ("old", BEFORE, KEPT, (), Standing.REPLACED),
        ("old", BEFORE, DELETED, (), Standing.DELETED),
        ("old", AFTER, KEPT, (), Standing.NEWER),
        ("old", AFTER, DELETED, (), Standing.NEWER),
    ],
)
def test_what_was_deployed_last_counts(
    *, sha256: str, deployed_at: datetime, kept: KeptEgg | None, known: tuple[str, ...], expected: Standing
) -> None:
    assert standing(EggOnNode(sha256, deployed_at), kept, known) is expected


@pytest.mark.parametrize("egg", [("../x", "1"), ("a/b", "1"), (".x", "1"), ("x", "../1"), ("x", ".1"), ("x", "")])
def test_no_name_leads_out_of_the_folder(egg: tuple[str, str]) -> None:
    assert not is_file_name(Egg(*egg))


def test_names_are_those_that_a_node_takes() -> None:
    assert is_file_name(Egg("my shop.de", "1.0+b_2-c"))
