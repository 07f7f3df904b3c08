"""Variables of a project: in the environment of its own spiders, and nowhere else on the node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from eggs import egg, source
from forms import in_full

from .conftest import Crawl, EggNode, new_node

SECRET = "topsecret-4242"
SPIDERS = """
import os
import time
from pathlib import Path

import scrapy

ASKED_FOR_AT_IMPORT = os.environ["API_KEY"]
# joined here, so that no file of the project has it
EXPECTED = "-".join(["topsecret", "4242"])


class Teller(scrapy.Spider):
    name = "teller"

    async def start(self):
        yield {
            "key": os.environ.get("API_KEY") == EXPECTED,
            "at_import": ASKED_FOR_AT_IMPORT == EXPECTED,
            "region": os.environ.get("REGION"),
            "started_with": "topsecret" in Path("/proc/self/environ").read_text() if os.geteuid() == 0 else False,
            "stdin": os.read(0, 10).decode(),
            "told_of_a_pipe": "DISCOVERYBOT_ENV_FD" in os.environ,
            "delay": self.settings["DOWNLOAD_DELAY"],
            "jobdir": self.settings["JOBDIR"],
            "closed": not __import__("ctypes").CDLL(None).prctl(3, 0, 0, 0, 0),
        }


class Waiting(scrapy.Spider):
    name = "waiting"

    async def start(self):
        Path("here").touch()
        while not Path("go").exists():
            time.sleep(0.02)
        yield {"key": os.environ["API_KEY"] == EXPECTED}
"""
SETTINGS = 'import os\nSPIDER_MODULES = ["teller.spiders"]\nTOKEN = os.environ["API_KEY"]\n'


@pytest.fixture(scope="module")
def variables_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EggNode]:
    node = new_node(tmp_path_factory.mktemp("variables"), NODE_SLOTS="1")
    node.forked = False
    try:
        node.start()
        for project in ("teller", "rival"):
            answer = node.deploy(project, "1.0", egg(source("teller", settings=SETTINGS, spiders=SPIDERS)))
            assert answer["status"] == "ok", answer
        yield node
    finally:
        node.clean_up()


def post(node: EggNode, spider: str, project: str = "teller", **fields: Any) -> Path:
    env = fields.pop("env", {"API_KEY": SECRET, "REGION": "eu"})
    spec = node.spec(spider, project=project, start_urls=[], has_env=bool(env), **fields)
    answer = node.post(spec, **({"env": json.dumps(env)} if env else {}))
    assert answer["status"] == "ok", answer
    return node.outbox / answer["jobid"]


def ended(node: EggNode, folder: Path) -> Crawl:
    crawl = node.ended(folder)
    assert crawl.exit["exit_code"] == 0, crawl.log
    return crawl


def test_a_project_that_wants_a_variable_when_it_is_imported_is_listed_without_it(variables_node: EggNode) -> None:
    assert {info["name"] for info in variables_node.catalog("teller")} == {"teller", "waiting"}


def test_its_spider_has_them_before_its_project_is_imported_and_no_file_has(variables_node: EggNode) -> None:
    crawl = ended(variables_node, post(variables_node, "teller"))
    (item,) = crawl.items
    assert item == {
        "key": True, "at_import": True, "region": "eu", "started_with": False, "stdin": "", "told_of_a_pipe": False,
        "delay": 0, "jobdir": None, "closed": True,
    }  # fmt: skip
    files = [path for path in variables_node.home.rglob("*") if path.is_file()]
    assert crawl.folder / "spec.json" in files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_settings_of_a_crawl_go_over_the_projects_and_not_over_the_nodes(variables_node: EggNode) -> None:
    settings = {"DOWNLOAD_DELAY": 2.5, "JOBDIR": "/tmp/never", "REMOTE_CONTROL_ENABLED": True}
    (item,) = ended(variables_node, post(variables_node, "teller", settings=settings)).items
    assert (item["delay"], item["jobdir"]) == (2.5, None)


def test_another_project_finds_nothing_of_them_on_the_node(variables_node: EggNode) -> None:
    """Its spider would fail to be imported without the variable: it is given one of its own."""
    first = ended(variables_node, post(variables_node, "teller"))
    other = ended(variables_node, post(variables_node, "teller", "rival", env={"API_KEY": "mine"}))
    assert first.items[0]["key"]
    assert not other.items[0]["key"]
    assert other.items[0]["region"] is None


def test_what_is_running_shows_them_to_nobody_who_lists_processes(variables_node: EggNode) -> None:
    node = variables_node
    folder = post(node, "waiting")
    node.wait_for((folder / "files/here").exists, 60)
    assert node.process is not None
    family = psutil.Process(node.process.pid).children(recursive=True)
    spider = psutil.Process(json.loads((folder / "started").read_text())["pid"])
    assert spider in family
    starter = spider.parent()
    assert starter
    assert "crawler.node.zygote" in starter.cmdline()
    for process in (psutil.Process(node.process.pid), *family):
        assert SECRET not in " ".join(process.cmdline())
        assert SECRET not in str(process.environ())
    (folder / "files/go").touch()
    assert ended(node, folder).items == [{"key": True}]


@in_full("attempts that wait when it is killed in crawler_node/test_restarts.py")
def test_an_attempt_that_waits_when_scrapyd_is_killed_is_run_with_them_once_it_is_posted_again(
    variables_node: EggNode,
) -> None:
    node = variables_node
    first = post(node, "waiting")
    node.wait_for((first / "files/here").exists, 60)
    spec = node.spec("teller", project="teller", start_urls=[], has_env=True)
    env = {"env": json.dumps({"API_KEY": SECRET})}
    assert node.post(spec, **env)["status"] == "ok"
    node.end(signal.SIGKILL)
    (first / "files/go").touch()
    node.start()
    node.wait_until_idle()
    waiting = node.outbox / f"{spec['job_id']}-1"
    assert not (waiting / "started").exists()
    assert not (waiting / "exit.json").exists()
    assert SECRET.encode() not in (node.home / "scrapyd.log").read_bytes()
    assert node.post(spec, **env)["status"] == "ok"
    assert ended(node, waiting).items[0]["key"]


@pytest.mark.parametrize(
    "fields",
    [{}, {"env": "{}"}, {"env": "no"}, {"env": '{"LD_PRELOAD": "topsecret"}'}, {"env": '{"A": ["topsecret"]}'}],
)
def test_variables_that_do_not_fit_the_spec_are_refused_without_being_quoted(
    variables_node: EggNode, fields: dict[str, str]
) -> None:
    spec = variables_node.spec("teller", project="teller", start_urls=[], has_env=True)
    answer = variables_node.post(spec, **fields)
    assert answer["status"] == "error"
    assert "env" in answer["message"]
    assert "topsecret" not in str(answer)
    assert not (variables_node.outbox / f"{spec['job_id']}-1").exists()


def test_a_plain_job_takes_none(variables_node: EggNode) -> None:
    form = {"project": "teller", "spider": "teller", "jobid": "plain", "env": '{"A": "b"}'}
    assert variables_node.ask("schedule", **form)["status"] == "error"


def test_a_closed_process_shows_nothing_to_its_own_user_and_can_still_be_found_measured_and_ended(
    tmp_path: Path,
) -> None:
    """As a user without rights: root sees everything."""
    if os.geteuid() != 0:
        pytest.skip("takes another user to be")
    closed = """
import os, sys
from gateway.process import hide_process
os.setgid(65534)
os.setuid(65534)
hide_process()
print(1, flush=True)
sys.stdin.read()
"""
    look = """
import os, subprocess, sys
from pathlib import Path
from crawler.node import process_tree
folder, pipe = Path(os.environ["FOLDER"]), subprocess.PIPE
command = [sys.executable, "-c", sys.argv[1], str(folder)]
child = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
child.stdout.readline()
os.setgid(65534)
os.setuid(65534)
for file in ("environ", "mem", "fd/0"):
    try:
        Path(f"/proc/{child.pid}/{file}").open("rb")
    except PermissionError:
        continue
    raise AssertionError(file)
assert process_tree.find_leader(folder) == child.pid
assert process_tree.use_more_than(1, [process_tree.MemoryShare(child.pid, 2)])
process_tree.kill_rest(None, folder)
assert child.wait(10) == -9
"""
    environ = {**os.environ, "FOLDER": str(tmp_path)}
    subprocess.run([sys.executable, "-c", look, closed], check=True, env=environ)
