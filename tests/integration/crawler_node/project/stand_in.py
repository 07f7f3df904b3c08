"""A runner that starts in no time: what its process does depends on the name of the spider alone."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPIDERS = (
    *("quick", "polite", "stubborn", "hungry", "parent", "environ", "not_importable", "reporting", "gone", "hostile"),
    "gone_and_busy",
    *("portrait", "dies", "exits", "browses", "leaves_a_browser", "browses_greedily", "prints", "hoards", "murmurs"),
    "hoards_without_a_name",
    *("crowds", "leaves_a_daemon", "litters", "stops_its_minder"),
)
_OPEN = Path("/proc/self/fd")


def preload() -> None:
    """What a zygote does before it forks; it fails if the test says so."""
    if (Path(os.environ["DISCOVERYBOT_HOME"]) / "no-zygote").exists():
        raise SystemExit("not today")


def main() -> None:
    command, *rest = sys.argv[1:]
    if command == "list":
        _say("\n".join(SPIDERS))
        return
    spider = rest[0]
    folder = Path(os.environ.get("DISCOVERYBOT_ATTEMPT_DIR", ""))
    with (Path(os.environ["DISCOVERYBOT_HOME"]) / "runs").open("a") as runs:
        runs.write(f"{folder.name}\n")
    os.set_inheritable(int(os.environ.get("DISCOVERYBOT_MARK_FD", "0")), False)  # noqa: FBT003 - takes no keyword
    _say(" ".join([f"{spider} begins", *rest[1:]]))
    globals()[spider](folder)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def quick(_: Path) -> None:
    sys.stderr.write("done\n")


def polite(folder: Path) -> None:
    def stop(*_: object) -> None:
        (folder / "asked").write_text("x" + ((folder / "asked").read_text() if (folder / "asked").exists() else ""))
        sys.exit(0)

    signal.signal(signal.SIGINT, stop)
    _wait(folder)


def stubborn(folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _wait(folder)


def parent(folder: Path) -> None:
    """Leaves a child behind that would run on."""
    child = subprocess.Popen(["sleep", "600"])
    (folder / "child").write_text(str(child.pid))


def hungry(folder: Path) -> None:
    ballast = b"x" * (400 << 20)
    polite(folder)
    del ballast


def browses(folder: Path) -> None:
    """Ignores SIGINT, with a child in a session of its own that has one in another."""
    _browse(folder, "sleep 600 & echo $! > browser; wait")
    stubborn(folder)


def leaves_a_browser(folder: Path) -> None:
    """Ends before what it has started, which by then is nobody's child."""
    _browse(folder, "setsid sleep 600 & echo $! > browser")


def browses_greedily(folder: Path) -> None:
    hoard = "import time; x = bytes(range(256)) * (400 << 12); time.sleep(600)"
    _browse(folder, f"{sys.executable} -c '{hoard}' & echo $! > browser; wait")
    polite(folder)


def crowds(folder: Path) -> None:
    """Has three hundred children that do nothing, each in a session of its own, and with no environment."""
    for _ in range(300):
        os.posix_spawn("/bin/sleep", ["sleep", "654"], {}, setsid=True)
    polite(folder)


def leaves_a_daemon(folder: Path) -> None:
    """Ends before a process that has no parent, group, session or environment of its."""
    note = f"open({str(folder / 'daemon')!r}, 'w').write(str(os.getpid()))"
    daemon = f"import os, time; os.fork() and os._exit(0); {note}; time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", daemon], start_new_session=True, env={})
    while not (folder / "daemon").exists() or not (folder / "daemon").read_text():
        time.sleep(0.01)


def stops_its_minder(_: Path) -> None:
    os.kill(os.getppid(), signal.SIGSTOP)


def litters(folder: Path) -> None:
    """Leaves a file where Python has temporary ones."""
    (folder / "litter").write_text(tempfile.mkdtemp())


def _browse(folder: Path, script: str) -> None:
    subprocess.Popen(["sh", "-c", script], cwd=folder, start_new_session=True)
    while not (folder / "browser").exists() or not (folder / "browser").read_text().strip():
        time.sleep(0.01)


def prints(_: Path) -> None:
    """Without end, and whatever it is asked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        os.write(1, b"all work and no play makes a dull log\n" * 1000)
        time.sleep(0.01)


def hoards(folder: Path) -> None:
    """Writes four megabytes where nobody lists them."""
    place = folder / "files" / "cache" / ".hidden"
    place.mkdir(parents=True)
    (place / "hoard").write_bytes(bytes(4 << 20))
    (place / "elsewhere").symlink_to("/")
    polite(folder)


def hoards_without_a_name(folder: Path) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(4 << 20))
        file.flush()
        polite(folder)


def murmurs(_: Path) -> None:
    """For three seconds, now and then."""
    for _ in range(10):
        _say("hm")
        sys.stdout.flush()
        time.sleep(0.3)


def environ(folder: Path) -> None:
    (folder / "environ.json").write_text(json.dumps(dict(os.environ)))


def not_importable(_: Path) -> None:
    import no_such_module_anywhere  # noqa: F401, PLC0415 - it is what the test is about


def reporting(folder: Path) -> None:
    report = {"finish_reason": "finished", "progress": {"completed_pages": 3}, "ended_at": "2027-01-01T00:00:00Z"}
    (folder / "state" / "report.json").write_text(json.dumps(report))


def gone(folder: Path) -> None:
    """Takes away the folder that the exit report is going to be written to."""
    folder.rename(folder.with_name(f"taken-away-{os.getpid()}"))


def gone_and_busy(folder: Path) -> None:
    """The same, and does not end."""
    gone(folder)
    time.sleep(60)


def hostile(folder: Path) -> None:
    """Leaves FIFOs for whoever looks at its files, and under the names that others may write to."""
    import psutil  # noqa: PLC0415 - the others start the quicker without it

    state = [f"state/{name}" for name in ("report.json", "progress.json", "active")]
    names = [*state, "items.jsonl", "stopping", "crawl.log"]
    for name in names + [f".exit.json.{ancestor.pid}" for ancestor in psutil.Process().parents()]:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    (folder / "ready").touch()
    time.sleep(2)


def portrait(folder: Path) -> None:
    """Describes the process it is."""
    own = {
        "parent": _parent_of(os.getppid()),  # what minds it is its own
        "leads": os.getsid(0) == os.getpgid(0) == os.getpid(),
        "descriptors": {fd: str((_OPEN / str(fd)).readlink()) for fd in _descriptors()},
        "inherits": [fd for fd in _descriptors() if fd > 2 and os.get_inheritable(fd)],
        "folder": str(Path.cwd()),
        "signals": {n.name: repr(signal.getsignal(n)).partition(" at ")[0] for n in signal.valid_signals() if n < 32},
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "arguments": sys.argv[1:],
        "handlers": len(logging.getLogger().handlers),
        "chance": random.random(),
    }
    (folder / "portrait.json").write_text(json.dumps(own))


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _descriptors() -> list[int]:
    listed = [int(entry.name) for entry in _OPEN.iterdir()]
    return [fd for fd in sorted(listed) if (_OPEN / str(fd)).is_symlink()]  # one was the listing's own


def dies(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def exits(_: Path) -> None:
    sys.exit(7)


def _wait(folder: Path) -> None:
    (folder / "ready").touch()
    while True:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
