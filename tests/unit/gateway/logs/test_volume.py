from __future__ import annotations

from collections import Counter

from gateway.contract.log_line import survey
from gateway.logs.volume import MOST, LevelLines, coarsened, volume_of

NINE = 1_811_840_400


def line(second: int, level: str, more: str = "") -> bytes:
    return f"2027-06-01 09:{second // 60:02d}:{second % 60:02d} [shop] {level}: said\n{more}".encode()


def test_each_line_is_counted_when_it_was_written_and_the_first_of_each_is_known() -> None:
    log = line(0, "INFO") + line(0, "INFO") + line(2, "ERROR", "Traceback\nValueError\n") + line(2, "INFO")
    volume = volume_of(survey(b"printed\n" + log, "INFO", None).times, 100)
    assert volume.step == 1
    assert volume.parts == [
        LevelLines(NINE, "INFO", 2, 108),
        LevelLines(NINE + 2, "ERROR", 3, 108 + 2 * len(line(0, "INFO"))),
        LevelLines(NINE + 2, "INFO", 1, 108 + len(log) - len(line(0, "INFO"))),
    ]


def test_a_long_log_is_told_in_longer_steps_and_none_of_its_lines_is_lost() -> None:
    times = [number * 7 % 3000 for number in range(900)]
    log = b"".join(line(second, "ERROR" if second % 9 == 0 else "INFO") for second in times)
    found = survey(log, "INFO", None)
    volume = volume_of(found.times, 0)
    assert volume.step == 60
    assert len({one.at for one in volume.parts}) <= MOST
    by_level = Counter[str]()
    for one in volume.parts:
        by_level[one.level] += one.lines
    assert by_level == {level: count for (_, level), count in found.lines.items()}
    # chunks together are no finer than the coarsest of them
    assert coarsened(volume.parts, volume.step) == volume
    assert coarsened(volume.parts[:2], 120).step == 120


def test_a_log_may_say_any_time() -> None:
    mad = b"".join(b"%04d-99-01 09:00:00 [shop] INFO: said\n" % year for year in range(1, 99))
    assert volume_of(survey(mad, "INFO", None).times, 0).parts == []
    far = b"".join(b"%04d-12-31 23:59:59 [shop] INFO: said\n" % year for year in (1, 1970, 2999, 9999))
    assert [one.lines for one in volume_of(survey(far, "INFO", None).times, 0).parts] == [1, 1]
