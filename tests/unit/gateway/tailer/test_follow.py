from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from gateway.clock import utc_now
from gateway.contract.outbox import SHIPPED, SPEC, AttemptId
from gateway.tailer.follow import Follower, SinkThread
from gateway.tailer.outbox import Attempt, Disk, Outbox, PlainLogs

ODD, FINE = AttemptId("a" * 32, 1), AttemptId("b" * 32, 1)


class NoSink:
    name = "nowhere"

    def ship(self, attempt: Attempt) -> bool:
        return not attempt.folder.exists()

    def is_away(self, error: Exception) -> bool:
        return isinstance(error, ConnectionError)


def test_an_attempt_nobody_can_make_sense_of_is_in_nobodys_way(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, tmp_path / "outbox")
    for attempt_id in (ODD, FINE):
        (outbox.path / str(attempt_id)).mkdir(parents=True)
    # a time to which no margin can be added
    spec = b'{"job_id":"a","attempt":1,"project":"p","spider":"s","start_urls":[],"not_after":"9999-12-31T23:59:59Z"}'
    (outbox.path / str(ODD) / SPEC).write_bytes(spec)
    live, mongo = SinkThread(NoSink()), SinkThread(NoSink())
    follower = Follower(
        outbox, live, mongo, keep=timedelta(days=1), disk=Disk(tmp_path, 0),
        plain_logs=PlainLogs(tmp_path, timedelta(), utc_now), clock=utc_now,
    )  # fmt: skip
    follower.sweep()
    assert set(follower.present) == {ODD, FINE}
    assert not (outbox.path / str(ODD) / SHIPPED).exists()
    assert (outbox.path / str(FINE) / SHIPPED).exists()
