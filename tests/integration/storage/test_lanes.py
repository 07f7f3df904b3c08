from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from jobs import OURS, claim, make_job, placed
from pymongo.database import Database

from gateway.domain.clock import utc_now
from gateway.domain.job import CrawlSpec, Job, JobStatus
from gateway.domain.room import Egg, Room
from gateway.storage.egg_needs import EggNeed, EggNeeds
from gateway.storage.indexes import RETIRED, ensure_indexes
from gateway.storage.job_queries import JobQueries
from gateway.storage.job_queue import JobQueue
from gateway.storage.jobs import JobStore
from gateway.storage.lanes import LaneStore

Documents = Database[dict[str, Any]]


def of(project: str, version: str | None, **fields: Any) -> Job:
    spec = CrawlSpec(project=project, version=version, spider="offers", start_urls=("http://shop.example/",))
    return make_job(spec=spec, **fields)


def keep(database: Documents, jobs: Sequence[Job]) -> None:
    for job in jobs:
        JobStore(database).insert(job)


def test_each_lane_that_fits_shows_its_best_job_that_could_be_started(database: Documents) -> None:
    now = utc_now()
    ours = [make_job(), make_job(priority=5), make_job(priority=9, not_before=now + timedelta(hours=1))]
    bobs = [make_job(user_id="bob"), make_job(user_id="bob", render=True)]
    shops = [of("shop", "1"), of("shop", "2"), of("shop", None), of("other", "1")]
    keep(database, [*ours, *bobs, *shops, make_job(user_id="carl", blocked=True)])
    lanes = LaneStore(database)

    def heads(room: Room, after: str = "") -> set[str]:
        return {head.job_id for head in lanes.heads(utc_now(), room.fits, after)}

    assert heads(Room()) == {ours[1].id, bobs[0].id}
    assert heads(Room(), str(OURS)) == {bobs[0].id}
    assert heads(Room(render_eggs=frozenset())) == {ours[1].id, bobs[0].id, bobs[1].id}
    assert heads(Room(frozenset({Egg("shop", "2")}))) == {ours[1].id, bobs[0].id, shops[1].id, shops[2].id}
    assert lanes.head(utc_now(), shops[3].in_lane) is not None
    assert lanes.head(utc_now(), make_job(user_id="dora").in_lane) is None


def test_eggs_that_no_node_with_room_has_are_named_once_where_there_is_room_for_their_jobs(
    database: Documents,
) -> None:
    keep(database, [of("shop", "1", user_id=user) for user in ("ada", "bob", "carl")])
    keep(database, [make_job(), of("shop", "2", render=True), of("shop", None), of("x", "1", blocked=True)])
    keep(database, [of("here", "1")])

    def lacking(room: Room) -> set[EggNeed]:
        return set(EggNeeds(database).lacking(utc_now(), room))

    here, shops = frozenset({Egg("here", "1")}), EggNeed(Egg("shop", "1"), render=False)
    assert lacking(Room(here)) == {shops}
    assert lacking(Room(here, frozenset())) == {shops, EggNeed(Egg("shop", "2"), render=True)}


def test_jobs_of_one_version_are_told_why_it_does_not_come(database: Documents) -> None:
    told = [of("shop", "1"), of("shop", "1", user_id="bob", render=True), of("shop", "1", user_id="carl")]
    keep(database, [*told, of("shop", "1-1"), of("shop", "11"), of("shop", "1", blocked=True), make_job()])
    needs, egg = EggNeeds(database), Egg("shop", "1")
    first, rest = needs.tell(egg, "broken", 2), needs.tell(egg, "broken", 2)
    assert {job.id for job in (*first, *rest)} == {job.id for job in told}
    assert (len(first), len(rest), needs.tell(egg, "broken", 2)) == (2, 1, [])


def test_users_are_counted_by_what_runs_or_is_on_its_way(database: Documents) -> None:
    queue = JobQueue(database)
    job = make_job()
    keep(database, [job, make_job(user_id="bob", status=JobStatus.RUNNING), make_job(user_id="carl")])
    placed(queue, job)
    assert LaneStore(database).running() == {"ada": 1, "bob": 1}


def test_jobs_of_before_there_were_lanes_are_given_their_place(database: Documents) -> None:
    queue, queries = JobQueue(database), JobQueries(database)
    old, urgent = make_job(created_at=utc_now() - timedelta(hours=1)), of("shop", "1", render=True, priority=99)
    expected = {job.id: job.queue_place() for job in (old, urgent)}
    keep(database, [old, urgent])
    database["jobs"].update_many({}, {"$unset": {"lane": "", "rank": ""}})
    assert queue.claim(claim(), OURS) is None
    assert queries.queue_position(urgent) == 1
    assert (queue.adopt(1), queue.adopt(9), queue.adopt(9)) == (1, 1, 0)
    found = {document["_id"]: document for document in database["jobs"].find()}
    assert {name: {key: found[name][key] for key in ("lane", "rank")} for name in found} == expected
    assert queue.claim(claim(), OURS) is not None


def test_users_who_wait_take_turns_also_in_the_count(database: Documents) -> None:
    now = utc_now()
    crowd = [make_job(user_id="bob", created_at=now - timedelta(minutes=9 - n)) for n in range(5)]
    mine = [make_job(user_id="ada", created_at=now + timedelta(seconds=n)) for n in range(2)]
    keep(database, [*crowd, *mine, make_job(user_id="bob", blocked=True), make_job(user_id="zoe")])
    queries = JobQueries(database)
    assert [queries.queue_position(job) for job in mine] == [2, 5]
    assert [queries.queue_position(job) for job in crowd] == [1, 4, 6, 7, 8]


def test_indexes_of_before_are_dropped(database: Documents) -> None:
    retired = min(RETIRED["jobs"])
    database["jobs"].create_index([("priority", -1)], name=retired)
    ensure_indexes(database)
    assert retired not in database["jobs"].index_information()
