"""Projects under users of their own: what one may see of another, of the node, and what the node may do to it."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from eggs import egg, source
from forms import full_or_short, in_full
from node import ROOT, Node, wait_for
from others import for_others
from wheels import write_wheel, write_wheels_of_node

from crawler.node import space
from crawler.node.keeper import Processes, acting_as
from gateway.contract.outbox import remove_tree
from gateway.contract.written_files import find_files, open_written
from gateway.tailer.__main__ import take_lock
from gateway.tailer.outbox import watch

if sys.platform != "linux" or os.geteuid() != 0:
    pytest.skip("only root of a Linux may start processes under other users", allow_module_level=True)

PLATFORM, FIRST, LAST = 41_000, 42_000, 42_004
UIDS = range(FIRST, LAST + 1)
#: Seconds; once, 15 were enough for the end of a node.
LONG = full_or_short(17.0, 2.0)
#: A container's entry has no other.
ENTRY_RIGHTS = ("setpriv", "--inh-caps=-all", "--bounding-set=-all,+setuid,+setgid")
SPIDERS = (Path(__file__).parent / "users_spiders.py").read_text()
PAINTED = """
import os, sys
from pathlib import Path

import colour
import scrapy

class Painted(scrapy.Spider):
    name = "painted"

    async def start(self):
        module, venv = Path(colour.__file__), Path(sys.prefix)
        tries = {
            "overwrite": lambda: (module.chmod(0o644), module.write_text("NAME = 'black'")),
            "add": (module.parent / "sitecustomize.py").touch,
            "list all": lambda: os.listdir(venv.parents[1]),
        }
        outcomes = {}
        for what, attempt in tries.items():
            try:
                attempt()
                outcomes[what] = "done"
            except OSError as error:
                outcomes[what] = type(error).__name__
        yield {"uid": os.getuid(), "python": sys.prefix, "outcomes": outcomes}
"""


class UsersNode(Node):
    def __init__(self, home: Path, **environ: str) -> None:
        super().__init__(home, ROOT, **{"NODE_UIDS": f"{FIRST}-{LAST}", "NODE_FORK": "false", **environ})
        keeper = (*ENTRY_RIGHTS, sys.executable, "-m", "crawler.node.keeper")
        self.before = (*for_others(home.parent, LAST), *keeper)

    def start(self) -> Node:
        self.home.mkdir(parents=True, exist_ok=True)
        os.chown(self.home, PLATFORM, PLATFORM)
        self.home.chmod(0o750)  # as the image makes it
        return super().start()

    def deploy(self, project: str) -> dict[str, Any]:
        content = egg(source(f"{project}_project", spiders=SPIDERS))
        answer: dict[str, Any] = self.client.post(
            "/addversion.json", data={"project": project, "version": "1"}, files={"egg": ("x.egg", content)}
        ).json()
        return answer

    @property
    def keeper(self) -> psutil.Process:
        assert self.process is not None
        return next(child for child in psutil.Process(self.process.pid).children() if child.uids().real == 0)

    @property
    def users(self) -> dict[str, int]:
        users: dict[str, int] = json.loads((self.home / "node" / "uids.json").read_text())
        return users

    def pid(self, folder: Path) -> int:
        pid: int = wait_for(lambda: json.loads((folder / "started").read_text())["pid"])
        return pid

    def items(self, folder: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]


def of_user(uid: int) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["uids", "status"])
        if process.info["uids"].real == uid and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def names_of(uid: int) -> list[str]:
    """Of what runs as that user, the cleaning up after it included."""
    names = []
    for process in of_user(uid):
        with suppress(psutil.NoSuchProcess):
            names.append(process.name())
    return names


@pytest.fixture
def started() -> Iterator[dict[int, subprocess.Popen[bytes]]]:
    """A process of each kind of user, all of them ours."""
    running = {
        uid: subprocess.Popen(["sleep", "60"], user=uid, group=uid, extra_groups=(), start_new_session=True)
        for uid in (0, PLATFORM, FIRST, LAST)
    }
    yield running
    for process in running.values():
        process.kill()
        process.wait()


def test_a_project_s_processes_are_signalled_and_nobody_else_s(started: dict[int, subprocess.Popen[bytes]]) -> None:
    processes = Processes(FIRST, frozenset({PLATFORM}))
    theirs = started.pop(FIRST)
    for process in started.values():
        with pytest.raises(ProcessLookupError):
            processes.signal(process.pid, signal.SIGKILL)
    for number in (0, -1, -theirs.pid):
        with pytest.raises(ProcessLookupError):
            processes.signal(number, 0)
    assert theirs.poll() is None
    processes.signal(theirs.pid, signal.SIGKILL)
    assert theirs.wait(60) == -signal.SIGKILL
    assert {uid: process.poll() for uid, process in started.items()} == dict.fromkeys(started)


#: Has a keeper start a process that stops itself when it is its user's and not yet what it is to become.
STOPPED = f"""
import os, signal, socket
from crawler.node import keeper
from gateway.settings import NodeSettings

owner = os.stat_result([0, 0, 0, 0, {PLATFORM}, {PLATFORM}, 0, 0, 0, 0])
ours = keeper.Keeper(*socket.socketpair(), NodeSettings(node_uids="{FIRST}-{LAST}"), owner)
keeper.restore_signals = lambda: signal.raise_signal(signal.SIGSTOP)
command = dict(args=["/bin/true"], env={{}}, numbers=[1, 2], folder="/")
pid = ours._result(dict(uid={FIRST}, do="start", command=command), [os.dup(1), os.dup(2)])["is"]
print(ours._result(dict(uid={FIRST}, do="signal", pid=pid, number=9), []))
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_one_that_is_stopped_before_it_is_started_in_full_holds_nobody_up() -> None:
    command = [sys.executable, "-c", STOPPED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "{'is': None}\n-9\n", done.stderr


@pytest.mark.parametrize("uid", [0, PLATFORM])
def test_root_and_the_platform_are_no_project_s_user(uid: int) -> None:
    with pytest.raises(PermissionError):
        Processes(uid, frozenset({PLATFORM}))


@pytest.fixture(scope="module")
def node() -> Iterator[UsersNode]:
    folder = Path(tempfile.mkdtemp(prefix="users-"))
    folder.chmod(0o711)
    (wheels := folder / "wheels").mkdir()
    write_wheels_of_node(wheels)
    write_wheel(wheels, "colour", "1.0", {"colour.py": "NAME = 'red'"})
    places = {"PROJECT_INDEX_URL": "none", "PROJECT_WHEELS": str(wheels)}
    shared = UsersNode(folder / "home", CRAWL_MEMORY_LIMIT=str(300 << 20), **places)
    try:
        shared.start()
        for project in ("victim", "thief"):
            answer = shared.deploy(project)
            assert answer["status"] == "ok", answer
        yield shared
    finally:
        shared.clean_up()
        for uid in UIDS:
            for process in of_user(uid):
                process.kill()
        shutil.rmtree(folder)


# before those that look at what a project leaves behind: a crawl with variables must not be taken for a zygote
def test_variables_reach_the_user_of_their_project(node: UsersNode) -> None:
    spec = node.spec("told", project="victim", start_urls=[], has_env=True)
    answer = node.post(spec, env='{"API_KEY": "mine"}')
    assert answer["status"] == "ok", answer
    folder = node.outbox / answer["jobid"]
    assert node.exit_of(folder)["exit_code"] == 0, (folder / "crawl.log").read_text()
    assert node.items(folder) == [{"key": "mine", "stdin": ""}]


def deploy_painted(node: UsersNode, version: str) -> dict[str, Any]:
    # of a package that is called as one of ours: what runs it must be open to that user, too
    content = egg({**source("crawler", spiders=PAINTED), "requirements.txt": "colour\n"})
    data = {"project": "victim", "version": version}
    answer: dict[str, Any] = node.client.post("/addversion.json", data=data, files={"egg": ("x.egg", content)}).json()
    return answer


@in_full("what each user may do, and what is left of it, in the others here")
def test_a_project_s_user_runs_its_environment_and_cannot_write_to_it(node: UsersNode) -> None:
    answer = deploy_painted(node, "2")
    assert answer["status"] == "ok", answer
    folder = node.run("painted", project="victim", version="2")
    assert node.exit_of(folder)["exit_code"] == 0, (folder / "crawl.log").read_text()
    (item,) = node.items(folder)
    assert item["uid"] == node.users["victim"]
    assert Path(item["python"]).is_relative_to(node.home / "node" / "venvs")
    assert item["outcomes"] == {
        "overwrite": "PermissionError",
        "add": "PermissionError",
        "list all": "PermissionError",
    }
    node.wait_until_idle()
    version = {"project": "victim", "version": "2"}
    assert node.client.post("/delversion.json", data=version).json()["status"] == "ok"


@pytest.fixture
def victim(node: UsersNode) -> Iterator[Path]:
    folder = node.run("sits", project="victim")
    wait_for((folder / "files" / "socket").exists)
    yield folder
    node.cancel(folder, "victim")
    node.wait_until_idle()


def test_each_project_has_a_user_and_the_node_another(node: UsersNode, victim: Path) -> None:
    users = node.users
    assert len(set(users.values())) == len(users) >= 3
    assert set(users.values()) <= set(UIDS)
    assert psutil.Process(node.pid(victim)).uids() == (users["victim"],) * 3
    assert node.process is not None
    scrapyd = psutil.Process(node.process.pid)
    assert scrapyd.uids() == (PLATFORM,) * 3
    for process in (scrapyd, psutil.Process(node.pid(victim))):
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "NoNewPrivs:\t1" in status
        assert "CapEff:\t0000000000000000" in status
        assert "CapPrm:\t0000000000000000" in status
        assert "\nGroups:\t \n" in status


def test_an_egg_neither_reads_nor_forges_what_is_of_another_or_of_the_node(node: UsersNode, victim: Path) -> None:
    assert node.process is not None
    secret = node.home / "secret"
    secret.touch(mode=0o600)
    pids = {"pid": str(node.pid(victim)), "scrapyd": str(node.process.pid), "keeper": str(node.keeper.pid)}
    params = {"victim": str(victim), "node": str(node.home / "node"), **pids}
    folder = node.run("steals", project="thief", params=params)
    assert node.exit_of(folder)["exit_code"] == 0, (folder / "crawl.log").read_text()
    outcome = {item["what"]: item["outcome"] for item in node.items(folder)}
    assert {what for what in outcome if what.startswith("own")} == {"own spec", "own egg", "own folder"}
    assert {outcome[what] for what in outcome if what.startswith("own")} == {"done"}
    assert len(outcome) > 30
    done = {what: how for what, how in outcome.items() if not what.startswith("own") and how != "PermissionError"}
    assert not done
    assert psutil.pid_exists(node.pid(victim))


@contextmanager
def lock_of_tailer(path: Path) -> Iterator[bool]:
    """Whether a tailer that starts now gets its lock, which it has in here."""
    lock = take_lock(path)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.close()


@in_full("what each user may do, and what is left of it, in the others here")
def test_no_lock_that_another_project_takes_stops_a_deployment_a_crawl_or_the_tailer(node: UsersNode) -> None:
    assert deploy_painted(node, "2")["status"] == "ok"
    here = node.home / "node"
    with acting_as(PLATFORM, PLATFORM):
        (here / "tailer.lock").touch(0o644)  # as it was made once
        with lock_of_tailer(here / "tailer.lock") as made:
            assert made
    contents = [path for folder in ("unpacked", "venvs") for path in (here / folder).iterdir() if path.is_dir()]
    locks = [here / "tailer.lock", here / "uids.lock", *(here / "venvs").glob(".*lock")]
    assert len(locks) >= 4
    holder = node.run("locks", project="thief", params={"paths": " ".join(map(str, [*locks, *contents]))})
    wait_for((holder / "files" / "tried").exists)
    outcomes = dict(line.split() for line in (holder / "files" / "outcomes").read_text().splitlines())
    assert {outcomes[str(lock)] for lock in locks} == {"PermissionError"}
    folder = node.run("painted", project="victim", version="2")
    assert node.exit_of(folder)["exit_code"] == 0, (folder / "crawl.log").read_text()
    assert deploy_painted(node, "3")["status"] == "ok"
    with acting_as(PLATFORM, PLATFORM), lock_of_tailer(here / "tailer.lock") as taken:
        assert taken
    for version in ("2", "3"):
        data = {"project": "victim", "version": version}
        assert node.client.post("/delversion.json", data=data).json()["status"] == "ok"
    node.cancel(holder, "thief")
    node.exit_of(holder)
    node.wait_until_idle()


def test_an_egg_is_imported_by_the_user_of_its_project_when_its_spiders_are_listed(node: UsersNode) -> None:
    for project in ("victim", "thief"):
        spiders = node.client.get("/listspiders.json", params={"project": project}).json()["spiders"]
        assert f"imported-as-{node.users[project]}" in spiders


def test_the_group_that_ships_can_read_all_and_remove_it(node: UsersNode) -> None:
    folder = node.run("reports", project="victim")
    node.exit_of(folder)
    with acting_as(PLATFORM, PLATFORM):
        assert node.items(folder) == [{"hello": "world"}]
        assert json.loads((folder / "state" / "report.json").read_text())["finish_reason"] == "finished"
        assert remove_tree(folder)
    assert not folder.exists()


def test_an_attempt_s_folder_cannot_be_closed_removed_or_forged_by_its_crawl(node: UsersNode) -> None:
    folder = node.run("breaks", project="victim")
    report = node.exit_of(folder)
    assert (report["exit_code"], folder.stat().st_uid) == (0, PLATFORM)
    *outcomes, left = node.items(folder)
    assert len(outcomes) > 20
    assert [item["what"] for item in outcomes if item["outcome"] != "PermissionError"] == []
    assert {"items.jsonl", "started", "spec.json", "crawl.log", "state", "files"} <= {*left["outcome"]}
    with acting_as(PLATFORM, PLATFORM):
        assert remove_tree(folder)


@in_full("what each user may do, and what is left of it, in the others here")
def test_a_folder_that_a_crawl_of_the_same_user_has_closed_is_opened_again(node: UsersNode) -> None:
    platform = ("setpriv", f"--reuid={PLATFORM}", f"--regid={PLATFORM}", "--clear-groups")
    one = UsersNode(node.home.parent / "one", NODE_UIDS="")
    one.before = (*one.before[: -len((*ENTRY_RIGHTS, "python", "-m", "keeper"))], *platform)
    del one.environ["NODE_UIDS"]
    try:
        one.start()
        assert one.deploy("victim")["status"] == "ok"
        folder = one.run("shuts", project="victim")
        report = one.exit_of(folder)
        assert (report["exit_code"], report["report"]["finish_reason"]) == (0, "finished")
        assert [item["number"] for item in one.items(folder)] == [1, 2]
    finally:
        one.clean_up()


@pytest.fixture
def small(node: UsersNode) -> Iterator[UsersNode]:
    """A node on which little may be written."""
    node.end()
    limits = {"FILES_MAX_BYTES": "500000", "CRAWL_MAX_ENTRIES": "2000", "CRAWL_MAX_RECORD_BYTES": "1000000"}
    node.environ |= limits
    node.start()
    yield node
    node.end()
    for name in limits:
        del node.environ[name]
    node.start()


@in_full("what each user may do, and what is left of it, in the others here")
def test_what_takes_too_much_of_the_disk_is_stopped_wherever_it_lies(small: UsersNode) -> None:
    kinds = {"deep": "files", "closed": "files", "beside": "files", "unnamed": "files", "many": "entries"}
    kinds |= {"items": "records", "frontier": "records"}
    folders = {kind: small.run("fills", project="victim", params={"how": kind}) for kind in kinds}
    # what is everybody's counts for all attempts of its user
    kinds["shared"], folders["shared"] = "files", small.run("fills", project="thief", params={"how": "shared"})
    assert {kind: small.exit_of(folder)["stopped_by"] for kind, folder in folders.items()} == kinds
    small.wait_until_idle()
    with acting_as(PLATFORM, PLATFORM):
        assert all(map(remove_tree, folders.values()))


@in_full("what each user may do, and what is left of it, in the others here")
def test_what_is_written_in_a_folder_of_scrapyd_is_heard_of_at_once(node: UsersNode) -> None:
    heard: set[tuple[str, str]] = set()
    observer = watch(node.outbox, lambda attempt, name: heard.add((str(attempt), name)))
    try:
        folder = node.run("reports", project="victim")
        wait_for(lambda: {(folder.name, "crawl.log"), (folder.name, "items.jsonl")} <= heard)
    finally:
        observer.stop()
    node.exit_of(folder)


@in_full("what each user may do, and what is left of it, in the others here")
def test_a_file_that_was_made_for_its_owner_alone_and_renamed_is_kept(node: UsersNode) -> None:
    folder = node.run("renames", project="victim")
    node.exit_of(folder)
    with acting_as(PLATFORM, PLATFORM):
        for found, name in zip(sorted(find_files(folder, 10)), ("own/feed.csv", "own/latest.csv"), strict=True):
            with os.fdopen(open_written(folder, found.name), "rb") as file:
                assert (found.name, found.problem, file.read()) == (name, None, b"kept")


def test_what_an_egg_has_closed_is_open_to_its_shippers_once_it_has_ended(node: UsersNode) -> None:
    folder = node.run("closes", project="victim")
    node.exit_of(folder)
    with acting_as(PLATFORM, PLATFORM):
        assert (folder / "files" / "closed" / "inside" / "file").read_bytes() == b""
        assert remove_tree(folder)


@in_full("what each user may do, and what is left of it, in the others here")
def test_what_was_closed_to_the_tailer_when_scrapyd_was_killed_is_removed_by_the_next_one(node: UsersNode) -> None:
    folder = node.run("sits", project="victim")
    wait_for((folder / "files" / "socket").exists)
    node.cancel(folder, "victim")
    node.exit_of(folder)
    removed = folder.with_name(f".removed-{folder.name}")
    (folder / "files" / "closed" / "inside").mkdir(parents=True)
    for path in (folder / "files" / "closed" / "inside", folder / "files" / "closed"):
        os.chown(path, node.users["victim"], node.users["victim"])
        path.chmod(0)
    with acting_as(PLATFORM, PLATFORM):
        folder.rename(removed)
        assert not remove_tree(removed)
    node.end()
    node.start()  # it looks at once, and then every minute
    wait_for(lambda: not removed.exists())


def test_who_ignores_a_cancellation_is_killed_with_all_that_hides(node: UsersNode) -> None:
    uid = node.users["thief"]
    folder = node.run("hides", project="thief")
    wait_for((folder / "files" / "hidden").exists)
    assert len(of_user(uid)) >= 2
    node.cancel(folder, "thief")
    report = node.exit_of(folder)
    assert (report["signal"], report["stopped_by"]) == (signal.SIGKILL, "cancel")
    wait_for(lambda: not of_user(uid))


def test_who_has_too_many_processes_is_stopped_and_holds_nobody_up(node: UsersNode) -> None:
    uid, keeper = node.users["thief"], node.keeper
    report = node.exit_of(node.run("crowds", project="thief"))
    assert (report["stopped_by"], report["signal"]) == ("processes", signal.SIGKILL)
    assert "sleep" not in names_of(uid)
    assert node.keeper == keeper


def test_nothing_stays_of_a_project_once_the_last_of_its_crawls_has_ended(node: UsersNode) -> None:
    uid = node.users["thief"]
    folder = node.run("litters", project="thief")
    assert node.exit_of(folder)["exit_code"] == 0, (folder / "crawl.log").read_text()
    assert "sleep" not in names_of(uid)
    (item,) = node.items(folder)
    assert Path(item["temporary"]) == folder / "tmp"
    places = (Path("/tmp"), Path("/dev/shm"))
    wait_for(lambda: not [path for place in places for path in place.glob(f"litter-{uid}-*")])
    wait_for(lambda: not (folder / "tmp").exists())
    wait_for(lambda: not [kind for kind in ("shm", "msg", "sem") if space._system_v(kind, uid)])


@in_full("what each user may do, and what is left of it, in the others here")
def test_memory_that_no_process_has_counts_as_files_do() -> None:
    with acting_as(LAST, LAST):
        assert ctypes.CDLL(None).shmget(0, 1 << 20, 0o1600) >= 0
        taken = space.measure([], space.Space(0, 0), elsewhere=space.shared_memory(LAST))
        assert taken.bytes >= 1 << 20
        space.remove_system_v(LAST, time.time() + 1)
        assert space.shared_memory(LAST) == 0


def test_a_keeper_that_takes_its_time_is_waited_for(node: UsersNode) -> None:
    keeper, folder = node.keeper, node.run("sits", project="victim")
    wait_for((folder / "files" / "socket").exists)
    keeper.suspend()
    with ThreadPoolExecutor() as others:
        cancelled = others.submit(node.cancel, folder, "victim")
        time.sleep(LONG)
        keeper.resume()
        assert cancelled.result(60) == "running"
    assert node.exit_of(folder)["stopped_by"] == "cancel"
    assert node.keeper == keeper


@in_full("what each user may do, and what is left of it, in the others here")
def test_who_takes_too_much_memory_is_stopped(node: UsersNode) -> None:
    report = node.exit_of(node.run("eats", project="victim"))
    assert report["stopped_by"] == "memory"
    assert report["peak_memory_bytes"] > 300 << 20


@in_full("what each user may do, and what is left of it, in the others here")
def test_what_runs_when_the_keeper_dies_runs_on_and_can_be_cancelled(node: UsersNode) -> None:
    folder = node.run("sits", project="victim")
    wait_for((folder / "files" / "socket").exists)
    node.keeper.kill()
    wait_for(lambda: node.process is None or node.process.poll() == 70)
    uid = node.users["victim"]
    assert node.pid(folder) in [process.pid for process in of_user(uid)]
    node.start()
    node.cancel(folder, "victim")
    wait_for(lambda: not of_user(uid))


@in_full("what each user may do, and what is left of it, in the others here")
def test_each_project_gets_one_user_whatever_dies_and_none_once_all_are_taken(node: UsersNode) -> None:
    plan = node.home.parent / "plan"
    plan.mkdir()
    os.chown(plan, PLATFORM, PLATFORM)
    node.end()
    node.environ["DISCOVERYBOT_CRASH_PLAN"] = str(plan)
    node.start()
    for side in ("before", "after"):
        (plan / f"node.give_user.{side}").touch()
        with suppress(httpx2.TransportError):
            node.deploy(side)
        assert node.process is not None
        assert node.process.wait(60) == -signal.SIGKILL
        left = node.users
        assert (side in left) == (side == "after")
        node.start()
        answer = node.deploy(side)
        assert answer["status"] == "ok", answer
        assert left.items() <= node.users.items()
        assert len(set(node.users.values())) == len(node.users)
    answer = node.deploy("onemore")
    assert answer["status"] == "error"
    assert f"NODE_UIDS: all {len(UIDS)} users are taken" in answer["message"]


@in_full("what each user may do, and what is left of it, in the others here")
def test_a_folder_that_was_not_made_in_full_is_made_when_its_attempt_is_posted_again(node: UsersNode) -> None:
    plan = Path(node.environ["DISCOVERYBOT_CRASH_PLAN"])
    for side in ("before", "after"):
        (plan / f"node.give_folder.{side}").touch()
        spec = node.spec("reports", project="victim", start_urls=[])
        with suppress(httpx2.TransportError):
            node.post(spec)
        assert node.process is not None
        assert node.process.wait(60) == -signal.SIGKILL
        node.start()
        assert node.post(spec)["status"] == "ok"
        assert node.exit_of(node.outbox / f"{spec['job_id']}-1")["exit_code"] == 0


def test_a_plain_job_finds_its_egg_and_nothing_of_it_stays(node: UsersNode) -> None:
    answer = node.client.post("/schedule.json", data={"project": "victim", "spider": "reports"}).json()
    log = node.home / "node" / "logs" / "victim" / "reports" / f"{answer['jobid']}.log"
    wait_for(lambda: log.exists() and "Spider closed (finished)" in log.read_text())
    node.wait_until_idle()
    wait_for(lambda: not list((node.home / "node" / "outbox").glob(".work-*")))


@in_full("what each user may do, and what is left of it, in the others here")
def test_crawls_of_our_own_project_are_forked_under_its_user(node: UsersNode) -> None:
    node.end()
    node.environ |= {"NODE_FORK": "true", "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8"}
    node.start()
    wait_for(lambda: "is warm" in node.log())
    folder = node.run("article", start_urls=["http://127.0.0.1:9/"])
    assert node.exit_of(folder)["exit_code"] == 0
    assert (folder / "items.jsonl").stat().st_gid == folder.stat().st_gid == node.users["default"]
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections and says nothing
        folder = node.run("article", start_urls=[f"http://127.0.0.1:{silent.getsockname()[1]}/"])
        crawl = psutil.Process(node.pid(folder))
        assert crawl.uids() == (node.users["default"],) * 3
        minder = crawl.parent()
        assert minder is not None
        zygote = minder.parent()
        assert zygote is not None
        assert zygote.ppid() == node.keeper.pid
        zygote.kill()
        wait_for(lambda: node.log().count("is warm") >= 2)
        assert crawl.is_running()
        node.cancel(folder)
        wait_for(lambda: not crawl.is_running() or crawl.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize(
    ("environ", "owner", "complaint"),
    [
        ({"NODE_UIDS": f"{FIRST}-{LAST}"}, 0, "neither root nor of NODE_UIDS"),
        ({"NODE_UIDS": f"{FIRST}-{LAST}"}, FIRST, "neither root nor of NODE_UIDS"),
        ({}, PLATFORM, "NODE_UIDS is not set"),
        ({"NODE_UIDS": "5"}, PLATFORM, "NODE_UIDS: "),
    ],
)
def test_a_node_that_cannot_be_started_like_this_says_why(
    tmp_path: Path, environ: dict[str, str], owner: int, complaint: str
) -> None:
    os.chown(tmp_path, owner, owner)
    ended = subprocess.run(
        [sys.executable, "-m", "crawler.node.keeper", "true"],
        env={"PATH": os.environ["PATH"], "DISCOVERYBOT_HOME": str(tmp_path), **environ},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert complaint in ended.stderr
