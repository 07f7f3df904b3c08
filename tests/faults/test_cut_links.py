"""Links between the machines of one platform are cut, both ways or one way, and delayed, while crawls are followed.

The stores are on one host; gateway, worker and beat on a second; crawl nodes on two more; the site, and those who ask
and follow, on a fifth. What is cut, the router drops without a word to either end.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest
import warm
from crawl_verifier import CrawlVerifier
from event_source import Event, log_text, read_events
from fault_table import record
from forms import FULL, full_or_short, in_full
from hosts import NETWORK, Host, Network, on, together
from rabbitmq import RabbitMQ, need_rabbitmq
from relay import Relay
from sites.server import Site
from stack import Stack, running_stack, wait_until
from stores import embedded_mongo, valkey_server

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

#: Crawls that run when a link is first cut, and clients that follow one of them each.
CRAWLS, FOLLOWED = full_or_short(200, 6), full_or_short(20, 4)
#: Asked for during each cut.
MEANWHILE = 3
#: Of each crawl; it takes some seconds.
PAGES, DELAY = 30, 0.2
#: Seconds within which `/health` names what is cut.
NAMED_WITHIN = 40.0
#: Seconds by which all comes later on a link that is not cut, each way; and within which a crawl begins then.
LATER, BEGUN_WITHIN = 0.3, 30.0
BOTH, THERE, BACK = (True, True), (True, False), (False, True)
WAYS = {BOTH: "both ways", THERE: "one way", BACK: "the other way"}


class Link(NamedTuple):
    name: str
    client: str
    server: str
    #: Of the server, or what the platform calls its URL.
    port: int | str
    #: The check of `/health` that names it, and how.
    check: str
    named: str
    ways: tuple[tuple[bool, bool], ...] = tuple(WAYS)
    #: Seconds that each cut lasts at least; in short until it is named.
    lasts: float = full_or_short(20.0, 0.0)
    #: Whether crawls are given up meanwhile that go on, and begin anew elsewhere.
    retried: bool = False


LINKS = [
    Link("node and MongoDB", "east", "stores", "mongo_uri", "node_states", r"no sign of life from east \("),
    Link("gateway and Redis", "front", "stores", "redis_url", "redis", "no answer"),
    Link("worker and broker", "front", "stores", "broker_url", "broker", "no answer"),
    Link("node and gateway", "front", "east", 6800, "node_states", r"east \(\d+ failure"),
]
#: A node counts as dead after 30 s.
LINKS.append(LINKS[0]._replace(name="node that is given up and MongoDB", ways=(BACK,), lasts=50.0, retried=True))
if not FULL:
    LINKS = [LINKS[0]._replace(ways=(BACK,)), LINKS[1]._replace(ways=(BOTH,))]


class Machines(NamedTuple):
    stack: Stack
    network: Network

    def cut(self, link: Link, way: tuple[bool, bool]) -> AbstractContextManager[None]:
        return self.network.cut(*self._ends(link), there=way[0], back=way[1])

    def delayed(self, link: Link) -> AbstractContextManager[None]:
        return self.network.delayed(*self._ends(link), LATER)

    def _ends(self, link: Link) -> tuple[Host, Host, int]:
        port = urlsplit(self.stack.ready[link.port]).port if isinstance(link.port, str) else link.port
        assert port
        return self.network[link.client], self.network[link.server], port


class Follower(threading.Thread):
    """A browser that follows one crawl: it comes again when its connection ends, and says what it heard last."""

    def __init__(self, stack: Stack, job_id: str) -> None:
        super().__init__(daemon=True)
        self._stack, self.job_id = stack, job_id
        self.events: list[Event] = []

    def run(self) -> None:
        # from when the link is whole until the end of all crawls nobody waits so long for a sign of life
        with httpx2.Client(timeout=60, headers=self._stack.http.headers, trust_env=False) as client:
            while not (self.events and self.events[-1].event == "end"):
                self._follow(client)

    def _follow(self, client: httpx2.Client) -> None:
        heard = next((event.id for event in reversed(self.events) if event.id), "")
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": heard} if heard else {})}
        try:
            with client.stream("GET", f"{self._stack.url}/jobs/{self.job_id}/logs", headers=headers) as response:
                response.raise_for_status()
                self.events.extend(read_events(response))
        except httpx2.HTTPError:
            time.sleep(0.5)

    def check_has_all(self) -> None:
        self.join(60)
        assert not self.is_alive(), f"{self.job_id} is over, and {len(self.events)} events say nothing of it"
        assert log_text(self.events).encode() == self._stack.log(self.job_id)


@contextmanager
def mongo_on(host: Host, home: Path) -> Iterator[str]:
    """Its URL. Our server is for loopback only, so there is a relay before it."""
    with (
        embedded_mongo(home) as mongo,
        Relay(urlsplit(mongo).port or 0, address=host.address).running() as relay,
    ):
        yield f"mongodb://{host.address}:{relay.port}/discoverybot"


@contextmanager
def stores_on(host: Host, home: Path) -> Iterator[dict[str, str]]:
    """What all processes of the platform know."""
    rabbit = RabbitMQ(home / "rabbit", address=host.address)
    redis = valkey_server(home / "redis", address=host.address)
    with together(*(on(host, store) for store in (mongo_on(host, home / "mongo"), redis, rabbit))) as started:
        yield {
            "MONGO_URI": str(started[0]),
            "REDIS_URL": str(started[1]),
            "RABBITMQ_URL": rabbit.url,
            "SCRAPYD_PASSWORD": "a-password-of-all",
            "CRAWL_ALLOW_NETWORKS": NETWORK,
            "CRAWL_STOP_GRACE": "3",
        }


def node_on(host: Host, home: Path, shared: dict[str, str]) -> AbstractContextManager[Stack]:
    own = {"NODE_NAME": host.name, "SCRAPYD_BIND_ADDRESS": host.address, "NODE_URL": f"http://{host.address}:6800"}
    return on(host, running_stack(home, only=("scrapyd", "tailer"), **shared, **own))


@contextmanager
def platform_on(network: Network, home: Path) -> Iterator[Stack]:
    front, nodes = network["front"], [network[name] for name in ("east", "west")]
    with stores_on(network["stores"], home) as shared:
        serving = running_stack(
            home / "front", only=("gateway", "worker", "beat"), GATEWAY_HOST=front.address, **shared
        )
        with together(on(front, serving), *(node_on(node, home / node.name, shared) for node in nodes)) as parts:
            stack: Stack = parts[0]
            # the gateway serves other machines, so it has made one
            key = wait_until(lambda: re.search(r"\bdb_\w+", stack.output.read_text()), what="the first key")
            stack.http.headers["Authorization"] = f"Bearer {key[0]}"
            wait_until(lambda: stack.http.get(f"{stack.url}/health").json()["status"] == "ok", what="good health")
            yield stack


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    need_rabbitmq()
    warm.ready()
    with (
        Network("stores", "front", "east", "west", "user") as network,
        network["user"].entered(),
        platform_on(network, tmp_path_factory.mktemp("machines")) as stack,
    ):
        yield Machines(stack, network)


@pytest.fixture
def site(machines: Machines) -> Iterator[Site]:
    with Site(host=machines.network["user"].address, delay=DELAY) as site:
        yield site


def test_hosts_end_with_whoever_made_them(tmp_path: Path) -> None:
    """However it is killed: nothing runs in them any more, and nobody finds them."""
    told = tmp_path / "told"
    maker = (
        "import subprocess, sys; from pathlib import Path; from hosts import Network\n"
        "with Network('one') as network, network['one'].entered():\n"
        "    sleeper = subprocess.Popen(['sleep', '600'])\n"
        "    Path(sys.argv[1]).write_text(f'{network[\"one\"].namespace} {sleeper.pid}\\n')\n"
        "    sleeper.wait()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    Network()  # may skip
    with subprocess.Popen((sys.executable, "-c", maker, told), env=environment) as process:
        namespace, sleeper = wait_until(
            lambda: told.exists() and told.read_text().endswith("\n") and told.read_text().split(), what="a host"
        )
        process.kill()
    wait_until(lambda: not Path("/run/netns", namespace).exists(), what="the end of a namespace")
    wait_until(lambda: not psutil.pid_exists(int(sleeper)), what="the end of what ran in it")


def test_a_link_between_hosts_is_cut_one_way_only_and_delayed() -> None:
    with Network("one", "two") as network, ExitStack() as ends:
        one, two = network["one"], network["two"]
        with two.entered():
            listener = ends.enter_context(socket.create_server((two.address, 0)))
        port = listener.getsockname()[1]
        with one.entered():
            asking = ends.enter_context(socket.create_connection((two.address, port), timeout=5))
        answering = ends.enter_context(listener.accept()[0])

        def answers_after() -> float:
            began = time.monotonic()
            asking.sendall(b"?")
            assert answering.recv(1) == b"?"
            answering.sendall(b"!")
            assert asking.recv(1) == b"!"
            return time.monotonic() - began

        answers_after()
        with network.delayed(one, two, port, 0.2):
            assert answers_after() >= 0.4
        with network.cut(one, two, port, there=False):
            asking.sendall(b"?")
            assert answering.recv(1) == b"?"
            answering.sendall(b"!")
            asking.settimeout(0.3)
            with pytest.raises(TimeoutError):
                asking.recv(1)
        asking.settimeout(10)
        assert asking.recv(1) == b"!"
        with network.delayed(one, two, port + 1, 0.2):
            assert answers_after() < 0.2


@in_full("silence towards each store in storage/test_deadlines.py and redis/test_wary_redis.py")
@pytest.mark.parametrize("link", LINKS, ids=lambda link: link.name.replace(" ", "-"))
def test_a_link_that_is_cut_is_named_and_nothing_is_lost_doubled_or_stuck(
    machines: Machines, site: Site, link: Link
) -> None:
    stack = machines.stack
    with CrawlVerifier(stack, site, pages=PAGES) as verifier:
        crawls = verifier.begin(CRAWLS, at_once=4)
        followers = [Follower(stack, verifier.jobs[crawl.number]) for crawl in crawls[:FOLLOWED]]
        for follower in followers:
            follower.start()
        verifier.wait_for_visit(crawls, after=0)
        recovered = max(cut_until_named(machines, verifier, link, way) for way in link.ways)
        if FULL:
            with machines.delayed(link):
                assert verifier.begun(priority=100) < BEGUN_WITHIN
        verifier.wait(timeout=400)
        for follower in followers:
            follower.check_has_all()
        ways = ", ".join(WAYS[way] for way in link.ways)
        delayed = f", {LATER:g} s later" if FULL else ""
        injected = f"{ways}{delayed}; {len(verifier.crawls)} crawls, {FOLLOWED} followed"
        record(
            f"Between {link.name} all is dropped",
            injected,
            recovered=recovered,
            **verifier.verdict(retried=link.retried),
        )


def cut_until_named(machines: Machines, verifier: CrawlVerifier, link: Link, way: tuple[bool, bool]) -> float:
    """Seconds from its end until a crawl that is then asked for begins."""

    def is_named() -> bool:
        return re.search(link.named, machines.stack.check(link.check)["message"]) is not None

    with machines.cut(link, way):
        cut = time.monotonic()
        verifier.begin(MEANWHILE)
        wait_until(is_named, timeout=NAMED_WITHIN, what=f"a word about {link.name} in /health")
        # how long it lasts is what is tested
        time.sleep(max(0.0, cut + link.lasts - time.monotonic()))
    waited = verifier.begun(priority=100)
    wait_until(lambda: _is_whole(machines.stack, link), timeout=NAMED_WITHIN, what="good health")
    return waited


def _is_whole(stack: Stack, link: Link) -> bool:
    """A node that has failed is named until it has run a crawl, but gets work."""
    nodes = stack.http.get(f"{stack.url}/nodes").json()["nodes"]
    return stack.check(link.check)["status"] == "ok" and all(node["state"] == "up" for node in nodes)
