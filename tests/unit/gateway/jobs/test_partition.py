from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote

from hypothesis import given
from hypothesis import strategies as st

from gateway.jobs.job import POINT, Partition, Requirements, rank

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
#: Also what no user, project or version of ours has: a partition is read back whatever it is of.
texts = st.text(min_size=1, max_size=8)
needs = st.builds(Requirements, texts, st.none() | texts, st.booleans(), st.integers(1, 9))
#: Ids that do not sort after `!` are nobody's (`keys.py`).
users = texts.filter(lambda text: text > "!\x7f")
partitions = st.builds(Partition, needs, users)
priorities = st.integers(-100, 100)
minutes = st.integers(0, 10_000)


@given(partitions)
def test_a_partition_is_read_back_from_its_name(partition: Partition) -> None:
    assert Partition.parse(str(partition)) == partition


def test_a_release_without_protocols_still_finds_the_requirements_of_a_partition() -> None:
    """It reads four parts: the kind, the project, the version and the user. It writes them as it has read them."""
    name = str(Partition(Requirements("shop", "1.0", protocol=2), "ada"))
    assert name == "plain/shop/1.0/%212%21ada"
    kind, project, version, user_id = map(unquote, name.split("/"))
    assert "/".join(quote(part, safe="") for part in (kind, project, version, user_id)) == name


@given(partitions, partitions)
def test_a_step_to_the_end_of_requirements_passes_all_their_partitions(
    partition: Partition, other: Partition
) -> None:
    passes = str(partition) < str(other) < partition.requirements.end
    assert str(partition) < partition.requirements.end
    if other.requirements == partition.requirements:
        assert str(other) < partition.requirements.end
    else:
        assert not passes


@given(priorities, priorities, minutes, minutes)
def test_a_point_is_worth_a_minute_of_waiting_and_no_job_is_overtaken_for_ever(
    mine: int, others: int, due: int, later: int
) -> None:
    ours = rank(NOON + timedelta(minutes=due), mine)
    theirs = rank(NOON + timedelta(minutes=due + later), others)
    assert (ours < theirs) == (mine * POINT > others * POINT - timedelta(minutes=later))
    if later > 200:
        assert ours < theirs


@given(st.lists(st.tuples(minutes, priorities), max_size=20), minutes)
def test_who_is_before_whom_is_the_same_at_every_moment(jobs: list[tuple[int, int]], now: int) -> None:
    aged = sorted(jobs, key=lambda job: -(job[1] + now - job[0]))
    ranked = sorted(jobs, key=lambda job: rank(NOON + timedelta(minutes=job[0]), job[1]))
    assert aged == ranked
