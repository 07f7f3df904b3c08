"""Spiders of an egg that is not to be trusted. They have no need of a page."""

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import scrapy


class Imported(scrapy.Spider):
    """Who lists the spiders imports this."""

    name = f"imported-as-{os.getuid()}"


class Sits(scrapy.Spider):
    name = "sits"

    async def start(self):
        Path("secret").write_text("mine")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("socket")
        listener.listen()
        import asyncio

        for _ in range(600):
            await asyncio.sleep(0.1)
        yield {}


class Told(scrapy.Spider):
    name = "told"

    async def start(self):
        yield {"key": os.environ.get("API_KEY"), "stdin": sys.stdin.read()}


def write_into_own_mark():
    (mark,) = [fd for fd in os.listdir("/dev/fd") if ".started." in os.path.realpath(f"/dev/fd/{fd}")]
    try:
        os.pwrite(int(mark), b'{"withdrawn": true}', 0)
    except OSError:  # it is open, but not for that
        os.open(f"/proc/self/fd/{mark}", os.O_WRONLY)


class Steals(scrapy.Spider):
    name = "steals"

    async def start(self):
        victim, node = Path(self.victim), Path(self.node)
        for what, attempt in {**self.files(victim, node), **self.processes(victim)}.items():
            try:
                attempt()
            except Exception as error:
                yield {"what": what, "outcome": type(error).__name__}
            else:
                yield {"what": what, "outcome": "done"}

    def files(self, victim, node):
        own, egg = Path(os.environ["DISCOVERYBOT_ATTEMPT_DIR"]), Path(os.environ["DISCOVERYBOT_EGG"])
        tries = {
            "own spec": (own / "spec.json").read_bytes,
            "own egg": lambda: os.listdir(egg),
            "alter its egg": lambda: (egg / "sitecustomize.py").touch(),
            "alter a module of its egg": Path(__file__).touch,
            "replace its egg": lambda: egg.rename(egg.with_name("x")),
            "list all that is unpacked": lambda: os.listdir(egg.parent.parent),
            "own folder": lambda: os.listdir(own),
            "say of itself what it likes": write_into_own_mark,
            "list the outbox": lambda: os.listdir(node / "outbox"),
            "add to the outbox": (node / "outbox" / ("0" * 32 + "-1")).mkdir,
            "list a folder": lambda: os.listdir(victim),
            "add to a folder": (victim / "exit.json").touch,
            "remove a folder": lambda: os.rename(victim, node / "outbox" / "x"),
            "open up a folder": lambda: victim.chmod(0o777),
            "connect": lambda: socket.socket(socket.AF_UNIX).connect(str(victim / "files" / "socket")),
            "list the node": lambda: os.listdir(node),
            "list the home": lambda: os.listdir(node.parent),
            "read a secret": (node.parent / "secret").read_bytes,
            "list the eggs": lambda: os.listdir(node / "eggs"),
            "add an egg": lambda: (node / "eggs" / "other").mkdir(),
            "replace an egg": lambda: (node / "eggs" / "victim" / "1.egg").write_bytes(b""),
            "list databases": lambda: os.listdir(node / "dbs"),
            "list logs": lambda: os.listdir(node / "logs"),
        }
        for name in ("spec.json", "crawl.log", "items.jsonl", "started", "files/secret"):
            tries[f"read {name}"] = (victim / name).read_bytes
            tries[f"write {name}"] = lambda name=name: (victim / name).open("ab")
        for name in ("catalog.json", "uids.json", "dbs/victim.db", "eggs/victim/1.egg"):
            tries[f"read {name}"] = (node / name).read_bytes
            tries[f"write {name}"] = lambda name=name: (node / name).open("ab")
        return tries

    def processes(self, victim):
        tries = {
            "signal the node": lambda: os.kill(int(self.scrapyd), 0),
            "kill the keeper": lambda: os.kill(int(self.keeper), signal.SIGKILL),
            "kill a crawl": lambda: os.kill(int(self.pid), signal.SIGKILL),
            "stop its group": lambda: os.killpg(int(self.pid), signal.SIGSTOP),
            "become root": lambda: os.setuid(0),
            "become the victim": lambda: os.setuid(victim.stat().st_uid),
        }
        for whose in ("pid", "scrapyd", "keeper"):
            process = Path("/proc") / getattr(self, whose)
            tries[f"environment of {whose}"] = (process / "environ").read_bytes
            tries[f"memory of {whose}"] = (process / "mem").read_bytes
            tries[f"descriptors of {whose}"] = lambda process=process: os.listdir(process / "fd")
            tries[f"folder of {whose}"] = (process / "cwd").readlink
        return tries


class Locks(scrapy.Spider):
    """Holds each lock that it can, until it is stopped."""

    name = "locks"

    async def start(self):
        import asyncio

        held, outcomes = {}, []
        for path in self.paths.split():
            try:
                held[path] = os.open(path, os.O_RDONLY)
                fcntl.flock(held[path], fcntl.LOCK_EX | fcntl.LOCK_NB)
                outcomes.append(f"{path} done\n")
            except OSError as error:
                outcomes.append(f"{path} {type(error).__name__}\n")
        Path("outcomes").write_text("".join(outcomes))
        Path("tried").touch()
        for _ in range(600):
            await asyncio.sleep(0.1)
        yield {}


class Reports(scrapy.Spider):
    name = "reports"

    async def start(self):
        yield {"hello": "world"}


class Closes(scrapy.Spider):
    name = "closes"

    async def start(self):
        for folder in (Path(), Path("../state")):
            (folder / "closed" / "inside").mkdir(parents=True)
            (folder / "closed" / "inside" / "file").touch()
            (folder / "closed" / "inside").chmod(0)
            (folder / "closed").chmod(0)
        yield {}
        Path().chmod(0)


class Breaks(scrapy.Spider):
    """Does to its attempt's folder what it can."""

    name = "breaks"

    async def start(self):
        attempt = Path("..")
        files = ("spec.json", "code.json", "started", "crawl.log", "items.jsonl", "requests.jsonl")
        tries = {
            "close it": lambda: attempt.chmod(0),
            "rename it": lambda: attempt.resolve().rename(attempt.resolve().with_name("x")),
            "report an end": (attempt / "exit.json").touch,
            "make a folder": (attempt / "shipped.json").mkdir,
            **{f"remove {name}": lambda name=name: (attempt / name).unlink() for name in files},
            **{f"close {name}": lambda name=name: (attempt / name).chmod(0) for name in files},
            **{
                f"rename {name}": lambda name=name: (attempt / name).rename(attempt / "x")
                for name in (*files, "state", "files", "tmp")
            },
            "lock started": lambda: os.open(attempt / "started", os.O_RDONLY),
            "lock code.json": lambda: os.open(attempt / "code.json", os.O_RDONLY),
        }
        for what, attempt_to in tries.items():
            try:
                attempt_to()
            except OSError as error:
                yield {"what": what, "outcome": type(error).__name__}
            else:
                yield {"what": what, "outcome": "done"}
        shutil.rmtree(attempt, ignore_errors=True)
        yield {"what": "remove all", "outcome": sorted(os.listdir(attempt))}


class Shuts(scrapy.Spider):
    name = "shuts"

    async def start(self):
        yield {"number": 1}
        Path("..").chmod(0)
        yield {"number": 2}


_OF_ONE_FILE = {
    "unnamed": partial(tempfile.TemporaryFile, buffering=0),
    "items": partial(open, "../items.jsonl", "ab", buffering=0),
    "frontier": partial(open, "../state/frontier", "ab", buffering=0),
}


class Fills(scrapy.Spider):
    """Fills the disk in ways that are not easily seen, and waits to be stopped."""

    name = "fills"

    async def start(self):
        import asyncio

        here = os.getcwd()
        if self.how == "deep":
            for _ in range(1200):  # deeper than any path may be long
                os.mkdir("folder")
                os.chdir("folder")
        elif self.how == "closed":
            os.makedirs("closed/inside")
            os.chdir("closed/inside")
        elif self.how == "beside":
            os.chdir("../state")
        elif self.how == "shared":
            os.chdir("/dev/shm")
        elif self.how in _OF_ONE_FILE:
            file = _OF_ONE_FILE[self.how]()  # open until it ends
            file.write(b"x" * 2_000_000)
        for number in range(0 if self.how in _OF_ONE_FILE else 3000 if self.how == "many" else 20):
            with open(f".{os.getpid()}-{number}", "wb") as file:
                file.write(b"" if self.how == "many" else b"x" * 100_000)
        os.chdir(here)
        if self.how == "closed":
            os.chmod("closed/inside", 0)
            os.chmod("closed", 0o700)
        for _ in range(600):
            await asyncio.sleep(0.1)
        yield {}


class Renames(scrapy.Spider):
    name = "renames"

    async def start(self):
        import tempfile

        os.mkdir("own", 0o700)
        file, path = tempfile.mkstemp(dir="own")
        os.write(file, b"kept")
        os.close(file)
        os.rename(path, "own/feed.csv")
        os.link("own/feed.csv", "own/latest.csv")
        yield {}


class Hides(scrapy.Spider):
    name = "hides"

    async def start(self):
        hidden = "import time; open('hidden', 'w'); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", hidden], start_new_session=True, env={})
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        time.sleep(600)
        yield {}


class Crowds(scrapy.Spider):
    name = "crowds"

    async def start(self):
        for _ in range(300):
            os.posix_spawn("/bin/sleep", ["sleep", "657"], {}, setsid=True)
        time.sleep(600)
        yield {}


class Litters(scrapy.Spider):
    """Leaves files everywhere, and a process that has nothing to do with it any more."""

    name = "litters"

    async def start(self):
        for folder in ("/tmp", "/dev/shm", tempfile.gettempdir()):
            place = Path(tempfile.mkdtemp(prefix=f"litter-{os.getuid()}-", dir=folder))
            (place / "file").touch()
        libc = ctypes.CDLL(None)
        assert min(libc.shmget(0, 4096, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600)) >= 0
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execve("/bin/sleep", ["sleep", "658"], {})
            os._exit(0)
        yield {"temporary": tempfile.gettempdir()}


class Eats(scrapy.Spider):
    name = "eats"

    async def start(self):
        self.much = b"x" * (400 << 20)
        time.sleep(60)
        yield {}
