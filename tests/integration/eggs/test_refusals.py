"""What cannot be run is refused when it is deployed, in words that help, and leaves no trace."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from eggs import SPIDER, egg, source, teller
from forms import first_in_short, in_full
from node import wait_for

from crawler.node.spider_lists import MOST_OF_A_PROJECT

from .conftest import EggNode, new_node

BROKEN = """
import scrapy
from {package} import nothing_of_the_kind
"""
#: Egg → what the message says.
REFUSED: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "a package that the node has from elsewhere": (
        teller("1", "itemadapter"),
        ("'itemadapter'", "already", "rename"),
    ),
    "an import error": (
        egg(source("clumsy", spiders=BROKEN.format(package="clumsy"))),
        ("ImportError", "nothing_of_the_kind", "clumsy/spiders.py, line 3"),
    ),
    "an error of syntax": (
        egg(source("typo", spiders="\ndef")),
        ("SyntaxError", "invalid syntax", "(typo/spiders.py, line 2). This is Python 3", ".python-version"),
    ),
    "what this version of a library has no more": (
        egg(source("dated", spiders="import scrapy\nfrom scrapy.utils import gone_long_ago\n")),
        ("ImportError", "dated/spiders.py, line 2", "It is not in scrapy 2."),
    ),
    "what Scrapy had no more before the oldest that a node can run": (
        egg(source("ancient", spiders="from scrapy.project import crawler\n")),
        ("'scrapy.project'", "ancient/spiders.py, line 1", "No Scrapy has it that a node can run (2.11 or later)"),
    ),
    "a missing dependency": (
        egg(source("needy", spiders="import no_such_dependency.at_all\n")),
        ("ModuleNotFoundError", "'no_such_dependency'", "needy/spiders.py", "requirements", "--include-dependencies"),
    ),
    "several missing dependencies": (
        egg(
            source(
                "poor",
                spiders="import no_such_dependency\n",
                pipelines="import json, re\nfrom no_such_other.part import one\n",
                optional="try:\n    import no_such_third\nexcept ImportError: ...\n",
            )
        ),
        ("'no_such_dependency'", "It also imports no_such_other, which is"),
    ),
    "a missing dependency whose distribution has another name": (
        egg(source("named", spiders="import no_such_first\n", pipelines="import slugify\n")),
        ("No module named 'no_such_first'", "It also imports python-slugify, which"),
    ),
    "a module of its own that the egg has not": (
        egg(
            {
                **source("alone", spiders="import misc.agents\n"),
                "EGG-INFO/elsewhere.txt": "misc ../misc\n",
            }
        ),
        ("No module named 'misc'", "It is the project's own (../misc) and not in the egg: have git track it"),
    ),
    "a module of its own that it has by another name": (
        egg(source("deep", spiders="from helping import x\n", helping="x = 1\n")),
        ("No module named 'helping'", "It is the project's own: import it as deep.helping"),
    ),
    "a project of Python 2": (
        egg(source("ancient", spiders="import urlparse\n")),
        ("No module named 'urlparse'", "was a module of Python 2"),
    ),
    "what an older Scrapy had, in a project of Python 2": (
        egg(source("oldest", spiders="from scrapy.project import crawler\n", cookies="x = 1\nprint 'x'\n")),
        ("No module named 'scrapy.project'", "It is written for Python 2 (oldest/cookies.py, line 2)"),
    ),
    "what Python had until 3.10": (
        egg(source("aged", spiders="from asyncio import coroutine\n")),
        ("cannot import name 'coroutine'", "This Python does not have it: import what has taken its place"),
    ),
    "names of Python 2": (
        egg(source("old", spiders="reload(sys)\n")),
        ("NameError", "(old/spiders.py, line 1). It is written for Python 2"),
    ),
    "statements of Python 2": (
        egg(source("older", spiders="print 'x'\n")),
        ("SyntaxError", "(older/spiders.py, line 1). It is written for Python 2", "2to3"),
    ),
    "pipelines in a list": (
        egg(
            source(
                "listing",
                settings="SPIDER_MODULES = ['listing.spiders']\nITEM_PIPELINES = ['listing.spiders.Teller']\n",
                spiders=SPIDER,
            )
        ),
        ("ITEM_PIPELINES is a list", "write a dictionary"),
    ),
    "a pipeline whose dependency is missing": (
        egg(
            source(
                "leaky",
                settings="SPIDER_MODULES = ['leaky.spiders']\nITEM_PIPELINES = {'leaky.pipelines.Save': 300}\n",
                spiders=SPIDER,
                pipelines="import no_such_store\n",
            )
        ),
        ("ModuleNotFoundError", "'no_such_store'", "(leaky/pipelines.py, line 1)"),
    ),
    "an extension that is not there": (
        egg(
            source(
                "short",
                settings="SPIDER_MODULES = ['short.spiders']\nEXTENSIONS = {'short.spiders.Gone': 300}\n",
                spiders=SPIDER,
            )
        ),
        ("NameError", "'short.spiders'", "'Gone'"),
    ),
    "a file of the folder in which it was written": (
        egg(source("astray", settings="COOKIE = open('cookie.txt').read()\n")),
        ("FileNotFoundError", "astray/settings.py, line ", "It is not in the egg: if it is the project's own"),
    ),
    "a module that was not packed": (
        egg(source("torn", spiders="import torn.gone\n")),
        ("'torn.gone'", "packages in its setup.py"),
    ),
    "settings that are not there": (egg(source("lost"), "lost.no_settings"), ("'lost.no_settings'",)),
    "a settings file that ends the process": (
        egg(source("quitter", settings="raise SystemExit(3)\n")),
        ("SystemExit", "quitter/settings.py"),
    ),
    "a settings file that kills the process": (
        egg(source("killer", settings="import os\nos.kill(os.getpid(), 9)\n")),
        ("signal 9",),
    ),
    "an add-on that is not there": (
        egg(source("addless", settings="ADDONS = {'no_such_addons.One': 1}\n")),
        ("no_such_addons",),
    ),
    "no entry point": (egg(source("nameless", spiders=SPIDER), ""), ("entry_points", "scrapyd-deploy")),
    "no spiders": (egg(source("empty", spiders="")), ("no spiders", "SPIDER_MODULES")),
    "no egg": (b"not a ZIP at all", ("not a ZIP file",)),
}


#: The codes of those that can be imported as far as they go.
REASONS = {
    "a package that the node has from elsewhere": "package_taken",
    "a settings file that kills the process": "process_crashed",
    "no entry point": "egg_unreadable",
    "no spiders": "spider_missing",
    "no egg": "egg_unreadable",
    **dict.fromkeys(
        (
            "a project of Python 2",
            "what an older Scrapy had, in a project of Python 2",
            "names of Python 2",
            "statements of Python 2",
        ),
        "python_missing",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_and_not_stored(node: EggNode, what: str) -> None:
    content, words = REFUSED[what]
    answer = node.deploy("refused", "1.0", content)
    assert (answer["status"], answer["reason"]) == ("error", REASONS.get(what, "not_importable"))
    assert all(word in answer["message"] for word in words), answer["message"]
    assert len(answer["message"]) < 700
    assert "\n" not in answer["message"]
    assert [*(node.home / "node/eggs").glob("**/*")] == []
    assert "refused" not in node.client.get("/listprojects.json").json()["projects"]
    assert node.catalog("refused") == []


@pytest.mark.parametrize(
    ("project", "version"),
    [
        ("../up", "1"),
        (".", "1"),
        ("..", "1"),
        ("", "1"),
        ("a/b", "1"),
        (".hidden", "1"),
        ("fine", ""),
        ("fine", ".."),
    ],
)
def test_names_that_are_no_names_of_files_are_refused(node: EggNode, project: str, version: str) -> None:
    answer = node.deploy(project, version, teller("1"))
    assert answer["status"] == "error"
    assert "cannot be the name of" in answer["message"]
    assert [*(node.home / "node/eggs").glob("**/*")] == []


def test_what_is_said_of_one_project_leaves_room_for_others(node: EggNode) -> None:
    assert node.deploy("large", "1", teller("1"))["status"] == "ok"
    (said,) = (node.home / "node/eggs/large").glob("*.json")
    os.truncate(said, MOST_OF_A_PROJECT)
    refused = node.deploy("large", "2", teller("2"))
    assert "all its versions" in refused["message"]
    assert refused["reason"] == "too_many_spiders"
    assert node.deploy("small", "1", teller("1", "small"))["status"] == "ok"
    assert node.deploy("large", "1", teller("1"))["status"] == "ok"
    assert node.deploy("large", "2", teller("2"))["status"] == "ok"
    for project in ("large", "small"):
        assert node.ask("delproject", project=project)["status"] == "ok"


@pytest.mark.parametrize("project", [".", "..", "", "../outbox"])
def test_deleting_a_project_deletes_nothing_else(node: EggNode, project: str) -> None:
    assert node.deploy("kept", "1", teller("1"))["status"] == "ok"
    assert node.ask("delproject", project=project)["status"] == "error"
    assert node.ask("delproject", project="kept")["status"] == "ok"


#: Says in a folder that it is imported, and is until it is told to end.
HANGING = """
import os, time
from pathlib import Path
(Path({here!r}) / str(os.getpid())).touch()
while not Path({here!r}, "end").exists():
    time.sleep(0.05)
"""


def test_what_hangs_while_it_is_listed_keeps_no_other_from_being_deployed(node: EggNode, tmp_path: Path) -> None:
    hanging = egg(source("hanging", settings=HANGING.format(here=str(tmp_path))))
    with ThreadPoolExecutor() as pool:
        deployments = [pool.submit(node.deploy, "hanging", str(number), hanging) for number in range(3)]
        try:
            wait_for(lambda: len(list(tmp_path.iterdir())) == len(deployments), 40)
            assert node.deploy("small", "1", teller("1", "small"))["status"] == "ok"
            assert not any(one.done() for one in deployments)
        finally:
            (tmp_path / "end").touch()
    assert node.ask("delproject", project="small")["status"] == "ok"


@in_full("the one before")
def test_what_hangs_while_it_is_listed_is_ended_with_the_node_and_stops_nobody(node: EggNode) -> None:
    code = "import subprocess, time\nsubprocess.Popen(['sleep', '300'])\nprint('noise ' * 9999)\ntime.sleep(300)\n"
    hanging = egg(source("hanging", settings=code))
    with pytest.raises(Exception, match="timed out"):
        node.client.post(
            "/addversion.json",
            data={"project": "hanging", "version": "1"},
            files={"egg": ("project.egg", hanging)},
            timeout=2,
        )
    began = time.monotonic()
    assert node.status()["running"] == 0
    assert time.monotonic() - began < 1
    assert node.end() < 5
    node.start()
    assert not [path for path in Path("/proc").glob("[0-9]*/environ") if _is_of(path, node)]
    assert [*(node.home / "node/eggs").glob("**/*")] == []


#: Takes more than it may; has two others take it; starts three hundred that do nothing. They ask for no processor.
GREEDY = "hoard = bytearray(1 << 30)\n"
SHARED = """
import subprocess, sys
children = [subprocess.Popen([sys.executable, "-c", "x = b'x' * (250 << 20); input()"], stdin=-1) for _ in range(2)]
children[0].wait()
"""
CROWDED = """
import os, signal
for _ in range(300):
    os.posix_spawn("/bin/sleep", ["sleep", "655"], {})
signal.pause()
"""
#: Writes more than it may, half of it under the name of a crawl's log; makes more files than it may.
HOARDING = """
import signal, tempfile
with tempfile.NamedTemporaryFile() as hoard, open("crawl.log", "wb") as log:
    for file in (hoard, log):
        file.write(bytes(50 << 20))
        file.flush()
    signal.pause()
"""
LITTERING = """
import signal, tempfile
from pathlib import Path
folder = tempfile.mkdtemp()
for number in range(1100):
    Path(folder, str(number)).touch()
signal.pause()
"""
#: Leaves a process that holds all that it has, and hides.
HAUNTED = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "656"], {})
    os._exit(0)
os.wait()
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EggNode]:
    limits = {
        "CRAWL_MEMORY_LIMIT": str(400 << 20),
        "FILES_MAX_BYTES": str(32 << 20),
        "CRAWL_MAX_ENTRIES": "1000",
        "TMPDIR": str(tmp_path_factory.mktemp("temporary")),
    }
    small = new_node(tmp_path_factory.mktemp("small"), **limits)
    try:
        yield small.start()
    finally:
        small.clean_up()


@pytest.mark.parametrize(
    ("package", "code", "words"),
    first_in_short(
        [
            ("greedy", GREEDY, ("MemoryError", "(greedy/settings.py, line 1)", "400 MiB (CRAWL_MEMORY_LIMIT")),
            ("shared", SHARED, ("400 MiB (CRAWL_MEMORY_LIMIT)",)),
            ("crowded", CROWDED, ("256 processes (CRAWL_MAX_PROCESSES)",)),
            ("hoarding", HOARDING, ("64 MiB of files (twice FILES_MAX_BYTES)",)),
            ("littering", LITTERING, ("1000 files and folders (CRAWL_MAX_ENTRIES)",)),
        ]
    ),
)
def test_an_import_has_the_limits_of_a_crawl(small: EggNode, package: str, code: str, words: tuple[str, ...]) -> None:
    answer = small.deploy(package, "1.0", egg(source(package, settings=code)))
    assert answer["status"] == "error"
    assert all(word in answer["message"] for word in words), answer["message"]
    small.wait_for(lambda: not running("sleep 655"))


def test_what_an_import_leaves_behind_stops_no_deployment_and_ends(node: EggNode) -> None:
    haunted = egg(source("haunted", settings=f"SPIDER_MODULES = ['haunted.spiders']\n{HAUNTED}", spiders=SPIDER))
    began = time.monotonic()
    answer = node.deploy("haunted", "1.0", haunted)
    assert answer["status"] == "ok", answer
    assert time.monotonic() - began < 40, "it is waited for no longer than a process that ends"
    assert not running("sleep 656")
    node.ask("delproject", project="haunted")


def running(command: str) -> bool:
    lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    return command in lines


def _is_of(environ: Path, node: EggNode) -> bool:
    """Whether a process of the project `hanging` is still there."""
    try:
        variables = environ.read_bytes().split(b"\0")
    except OSError:
        return False
    return f"DISCOVERYBOT_HOME={node.home}".encode() in variables and b"SCRAPY_PROJECT=hanging" in variables
