from __future__ import annotations

from gateway.contract.log_line import Position
from gateway.web.event_stream.log_lines import CHUNK_BYTES, LineRun, Ring, data_of, log_event


def run_of(*ends: int, size: int = 10) -> LineRun:
    run = LineRun(1, 0)
    for end in ends:
        run.append(end, b"x" * size)
    return run


def test_a_run_covers_every_place_from_which_a_line_of_its_own_comes_next() -> None:
    run = run_of(10, 20)
    covered = {offset for offset in range(25) if run.covers(Position(1, offset))}
    assert covered == set(range(20))
    assert not run.covers(Position(2, 0))


def test_a_chunk_holds_all_that_follows_and_is_shared() -> None:
    run = run_of(10, 20, 30)
    assert run.chunk(10) == (b"x" * 20, 30)
    assert run.chunk(10) is run.chunk(10)
    run.append(40, b"y")
    assert run.chunk(10).end == 40


def test_a_place_within_a_line_gets_the_whole_line() -> None:
    assert run_of(10, 20).chunk(5) == (b"x" * 20, 20)


def test_a_chunk_is_bounded_and_never_empty() -> None:
    half = CHUNK_BYTES // 2
    assert run_of(1, 2, 3, size=half).chunk(0).end == 2
    assert run_of(1, 2, size=CHUNK_BYTES * 2).chunk(0).end == 1


def rows(*ends: int, width: int = 10) -> list[tuple[int, int, str]]:
    return [(end - width, end, "{}") for end in ends]


def test_a_ring_goes_on_where_it_ends() -> None:
    ring = Ring(100, 1000)
    assert ring.push(1, rows(10, 20))
    assert not ring.push(1, rows(30))
    assert (ring.attempt, ring.start, ring.end) == (1, 0, 30)


def test_a_ring_drops_what_it_knows_and_what_an_earlier_attempt_says() -> None:
    ring = Ring(100, 1000)
    ring.push(2, rows(10, 20))
    assert not ring.push(2, rows(10, 20))
    assert not ring.push(1, rows(500))
    assert not ring.push(2, rows(10, 20, 30))
    assert [end for end, _ in ring.after(0)] == [10, 20, 30]


def test_a_ring_begins_anew_after_a_hole_and_with_the_next_attempt() -> None:
    ring = Ring(100, 1000)
    ring.push(1, rows(10, 20))
    assert ring.push(1, rows(50))
    assert (ring.start, ring.end, len(ring)) == (40, 50, 1)
    assert ring.push(2, rows(10))
    assert (ring.attempt, ring.start, ring.end) == (2, 0, 10)


def test_a_ring_is_bounded_by_number_and_by_bytes() -> None:
    few, small = Ring(100, 1 << 30), Ring(1 << 30, 5000)
    for ring in (few, small):
        for end in range(10, 100_000, 10):
            ring.push(1, rows(end))
    assert 100 <= len(few) <= 125
    assert small.size <= 5000 * 1.25
    assert few.size == sum(len(event) for _, event in few.after(0))
    assert not few.covers(Position(1, 10))


def test_an_event_holds_its_data() -> None:
    assert data_of(log_event(1, 20, b'{"msg":"id: 3 data: x"}')) == b'{"msg":"id: 3 data: x"}'
