"""Stores go away and come back, and tailers are killed: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson
import redis
from forms import full_or_short
from relay import MongoRelay, Relay
from stores import StoreProcess, embedded_mongo, valkey_server
from tailer_node import Crawl, Node, eventually

from gateway.clock import utc_now
from gateway.contract.log_line import split_entries
from gateway.contract.outbox import REQUESTS, SPEC, write_atomically
from gateway.contract.records import SpiderInfo
from gateway.stores.redis import log_stream

TailingNode = Callable[..., AbstractContextManager[Node]]
LINES = 20_000
#: So many lines that a loss is noticed, and so few that the test is quick.
SOME = 1000
KILLS = full_or_short(20, 6)
#: How many lines a crawl of three pages logs, and in how many seconds.
LINES_OF_A_CRAWL, SECONDS_OF_A_CRAWL = 108, 0.25
MOST_ROUND_TRIPS = 25
#: Seconds within which a single line is shipped, and how many crawls may miss that on a busy machine. If lines waited
#: to be shipped together, no crawl would be so quick.
AT_ONCE, TRIES = 0.2, 10


def write_lines(crawl: Crawl, lines: int, *, seconds: float = 0.0) -> None:
    """Write lines, some of them torn or long, and an item and a request for each, evenly over `seconds`."""
    started = time.monotonic()
    for number in range(lines):
        if number % 500 == 499:
            crawl.log(b"x" * 300_000 + b"\n")
        if number % 100 == 0:
            crawl.log(b"2027-06-01T09:00:01.250Z [seo] INFO: ")
            time.sleep(max(0.0, started + seconds * number / lines - time.monotonic()))
            crawl.log(f"torn {number}\n".encode())
        else:
            crawl.log_line(f"line {number}")
        crawl.item(orjson.dumps({"number": number}) + b"\n")
        crawl.request(orjson.dumps({"url": f"http://site/{number}"}) + b"\n")


def assert_complete(node: Node, crawl: Crawl, items: int) -> None:
    node.ended(crawl)
    assert node.stored_log(crawl) == crawl.log_file
    assert [(item.data or {}).get("number") for item in node.stored_items(crawl)] == list(range(items))
    assert node.stored_requests(crawl) == (crawl.folder / REQUESTS).read_bytes()


def assert_live_end(node: Node, crawl: Crawl, *, holes: int) -> None:
    """Check that the stream ends where the log does, agrees with the file, and has at most so many holes."""
    log = crawl.log_file
    eventually(lambda: (stream := node.stream(crawl)) and stream[-1][1] == len(log))
    stream = node.stream(crawl)
    whole = {
        entry.end: (entry.start, orjson.loads(entry.to_json())) for entry in split_entries(log, 0, final=True)[0]
    }
    assert all(whole[end] == (start, data) for start, end, data in stream)
    assert sum(left[1] != right[0] for left, right in pairwise(stream)) <= holes


def test_a_tailer_that_is_killed_again_and_again_ships_all_of_it_once(
    tmp_path: Path,
    tailing_node: TailingNode,
    mongo: StoreProcess,
    valkey: StoreProcess,
    record_property: Callable[[str, object], None],
) -> None:
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    dice = random.Random(seed)
    with tailing_node(tmp_path, mongo, valkey) as node:
        crawl = node.crawl()
        writer = threading.Thread(target=write_lines, args=(crawl, LINES), kwargs={"seconds": 5.0})
        writer.start()
        for _ in range(KILLS):
            time.sleep(dice.uniform(0.01, 0.5))
            node.kill_tailer()
            node.start_tailer()
        writer.join()
        crawl.end()
        assert_complete(node, crawl, LINES)
        assert_live_end(node, crawl, holes=0)


def test_a_redis_that_is_flushed_or_away_delays_nothing_else(
    tmp_path: Path, tailing_node: TailingNode, mongo: StoreProcess
) -> None:
    with valkey_server(tmp_path / "valkey") as valkey, tailing_node(tmp_path / "home", mongo, valkey) as node:
        crawl = node.crawl()
        crawl.log_line("before")
        eventually(lambda: node.stream(crawl))
        with redis.Redis.from_url(valkey) as client:
            client.flushall()
        crawl.log_line("after the flush")
        eventually(lambda: node.stream(crawl))
        with valkey.frozen():
            crawl.log_line("meanwhile")
            crawl.item(b'{"number":0}\n')
            eventually(lambda: node.stored_log(crawl) == crawl.log_file and node.stored_items(crawl))
        valkey.kill()
        write_lines(crawl, SOME)
        eventually(lambda: node.stored_log(crawl) == crawl.log_file)
        valkey.start()
        crawl.log_line("it is back")
        assert_live_end(node, crawl, holes=1)
        crawl.end()
        node.ended(crawl)


def test_the_lines_of_a_crawl_take_few_round_trips_to_redis_and_the_first_one_goes_at_once(
    tmp_path: Path, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess
) -> None:
    with (
        Relay(urlsplit(valkey).port or 0).running() as relay,
        tailing_node(tmp_path, mongo, f"redis://127.0.0.1:{relay.port}/0") as node,
    ):
        node.redis_url = valkey  # the test's own commands are not counted
        ship_a_crawl(node, relay)  # the first crawl opens the connection
        shipped = []
        while not (shipped and shipped[-1].is_as_it_should_be):
            assert len(shipped) < TRIES, shipped
            shipped.append(ship_a_crawl(node, relay))


class Shipped(NamedTuple):
    #: Seconds until the first line was there, and until all lines were.
    waited: float
    seconds: float
    round_trips: int

    @property
    def is_as_it_should_be(self) -> bool:
        # a busy machine may take more seconds, and more round trips in them, but not more per second
        most = MOST_ROUND_TRIPS * max(1.0, self.seconds / SECONDS_OF_A_CRAWL)
        return self.waited < AT_ONCE and 0 < self.round_trips <= most


def ship_a_crawl(node: Node, relay: Relay) -> Shipped:
    crawl = node.crawl()
    crawl.log_line("first")
    written = time.monotonic()
    eventually(lambda: node.stream(crawl))
    waited = time.monotonic() - written
    before = relay.round_trips
    for number in range(LINES_OF_A_CRAWL - 1):
        crawl.log_line(f"line {number}")
        time.sleep(SECONDS_OF_A_CRAWL / LINES_OF_A_CRAWL)
    eventually(lambda: len(node.stream(crawl)) == LINES_OF_A_CRAWL)
    taken, seconds = relay.round_trips - before, time.monotonic() - written
    crawl.end()
    node.ended(crawl)
    return Shipped(waited, seconds, taken)


def test_a_mongodb_that_is_away_gets_everything_later_and_delays_no_line(
    tmp_path: Path, tailing_node: TailingNode, valkey: StoreProcess
) -> None:
    with embedded_mongo(tmp_path / "mongo") as mongo, tailing_node(tmp_path / "home", mongo, valkey) as node:
        crawl = node.crawl()
        crawl.log_line("before")
        eventually(lambda: node.stored_log(crawl))
        mongo.kill()
        write_lines(crawl, SOME)
        crawl.end()
        eventually(lambda: (stream := node.stream(crawl)) and stream[-1][1] == len(crawl.log_file))
        mongo.start()
        assert_complete(node, crawl, SOME)


def test_a_folder_and_its_log_link_go_once_everything_is_acknowledged(
    tmp_path: Path, tailing_node: TailingNode, valkey: StoreProcess
) -> None:
    with (
        embedded_mongo(tmp_path / "mongo") as mongo,
        tailing_node(tmp_path / "home", mongo, valkey, NODE_KEEP_SECONDS="0") as node,
    ):
        link = node.node_dir / "logs" / "default" / "seo"
        link.mkdir(parents=True)
        crawl = node.crawl()
        mongo.kill()
        link = link / f"{crawl.id}.log"
        link.symlink_to(crawl.log_path)
        crawl.log_line("all there is")
        crawl.end()
        eventually(lambda: node.stream(crawl))
        assert crawl.log_path.exists()
        mongo.start()
        eventually(lambda: not crawl.folder.exists())
        assert not link.is_symlink()
        assert b"all there is" in node.stored_log(crawl)
        eventually(lambda: not list(node.outbox.iterdir()))


def test_what_stands_in_the_place_of_a_logs_stream_keeps_no_folder_from_its_end(
    tmp_path: Path, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess
) -> None:
    with (
        tailing_node(tmp_path / "home", mongo, valkey, NODE_KEEP_SECONDS="0") as node,
        redis.Redis.from_url(valkey) as client,
    ):
        crawl = node.crawl()
        client.set(log_stream(*crawl.id), "nonsense")
        crawl.log_line("all there is")
        crawl.end()
        eventually(lambda: not crawl.folder.exists())
        assert b"all there is" in node.stored_log(crawl)
        assert client.ttl(log_stream(*crawl.id)) > 0


def test_a_heartbeat_tells_what_is_alive_and_the_catalogue_is_published(node: Node) -> None:
    alive, dead = node.crawl(), node.crawl()
    dead.die()
    info = SpiderInfo(project="default", name="seo", params_schema={"$defs": {}})
    write_atomically(node.node_dir / "catalog.json", orjson.dumps([info.model_dump()]))

    def told() -> bool:
        found = node.nodes.get(node.name)
        return (
            found is not None and found.alive == [str(alive.id)] and {str(alive.id), str(dead.id)} <= {*found.present}
        )

    eventually(told)
    eventually(lambda: info in node.spiders.all())
    alive.end()
    node.ended(alive)
    node.ended(dead)
    eventually(lambda: (found := node.nodes.get(node.name)) and not found.present)


def test_a_second_tailer_says_that_there_is_one(node: Node) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "gateway.tailer"],
        env=node.environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert second.returncode == 1
    assert "there can be only one" in second.stderr


def test_a_broken_folder_is_in_nobodys_way(node: Node) -> None:
    broken = node.crawl()
    (broken.folder / SPEC).write_bytes(b"{")
    (broken.folder / "items.jsonl").mkdir()
    fine = node.crawl()
    fine.log_line("fine")
    fine.end()
    node.ended(fine)
    (broken.folder / "items.jsonl").rmdir()
    broken.end()
    node.ended(broken)


def test_a_living_node_follows_the_servers_clock_when_that_is_turned(
    tmp_path: Path, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess
) -> None:
    def shown() -> timedelta:
        document = node.nodes.get(node.name)
        return document.heartbeat_at - utc_now() if document else timedelta.min

    with MongoRelay.before(mongo).running() as relay, tailing_node(tmp_path, relay.url(mongo), valkey) as node:
        eventually(lambda: shown() > timedelta(seconds=-5))
        began = node.nodes.get(node.name).beating_since
        relay.ahead = timedelta(hours=1)
        eventually(lambda: abs(shown() - relay.ahead) < timedelta(seconds=10))
        relay.ahead = timedelta()
        eventually(lambda: abs(shown()) < timedelta(seconds=10))
        assert abs(node.nodes.get(node.name).beating_since - began) < timedelta(seconds=1)
