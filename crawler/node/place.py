"""`python -m crawler.node.place COMMAND…`: become COMMAND at a free place of `NODES_DIR`, as a node of its own.

So any number of identical containers on one volume are different nodes (`docker compose up --scale scrapyd=3`). When
a node is gone, the next one that starts takes over its place, its name, and the results that were not shipped yet.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from gateway.contract.node_list import PLACE, PLACE_LOCK, NodePlace
from gateway.contract.outbox import open_lock, write_atomically
from gateway.crash_points import state_change
from gateway.errors import SettingsError
from gateway.settings import NodeSettings

#: Maximum number of nodes on one machine.
_MOST = 1000
#: Seconds between two tries to lock a place, and how many tries: a process that checks whether it is taken holds the
#: lock for some microseconds.
_LOOK, _LOOKS = 0.01, 5


class NoPlaceError(RuntimeError):
    """`NODES_DIR` cannot be used, or is full."""


def take_place(settings: NodeSettings) -> Mapping[str, str]:
    """Take the first free place, and return the environment of a node there. The place stays taken until this
    process, or the command that it becomes, has ended. Raises `NoPlaceError`.
    """
    if settings.nodes_dir is None:
        raise NoPlaceError("NODES_DIR is not set: it names the folder that the nodes of this machine share")
    # other machines of the network know a container by its host name
    url = f"http://{socket.gethostname()}:{settings.scrapyd_port}"
    for number in range(1, _MOST + 1):
        name = f"{settings.node_name}-{number}"
        home = settings.nodes_dir.absolute() / name
        if _lock(home):
            slots, render_slots = settings.node_slots, settings.node_render_slots
            _say(home, NodePlace(name=name, url=url, slots=slots, render_slots=render_slots))
            return {"DISCOVERYBOT_HOME": str(home), "NODE_NAME": name, "NODE_URL": url}
    raise NoPlaceError(f"NODES_DIR: all {_MOST} places in {settings.nodes_dir} are taken")


@state_change("node.take_place")
def _lock(home: Path) -> bool:
    """Lock the place; return whether it is ours now. The descriptor, and with it the lock, stays open
    across `exec`.
    """
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = open_lock(home / PLACE_LOCK)
    except OSError as error:
        raise NoPlaceError(f"NODES_DIR: {home} cannot be used: {error.strerror}") from error
    for _ in range(_LOOKS):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK)
        else:
            os.set_inheritable(lock, True)  # noqa: FBT003 - takes no keyword
            return True
    os.close(lock)
    return False


@state_change("node.note_place")
def _say(home: Path, place: NodePlace) -> None:
    write_atomically(home / PLACE, place.model_dump_json().encode())


def main(command: list[str]) -> int:
    """Become the command. Returns an exit code only if that fails."""
    try:
        settings = NodeSettings.load()
        environment = take_place(settings)
        os.execvpe(command[0], command, {**os.environ, **environment})  # noqa: S606 - the caller chooses the command
    except (SettingsError, NoPlaceError) as error:
        sys.stderr.write(f"node: {error}\n")
    except IndexError:
        sys.stderr.write("node: no command; say which, as in `python -m crawler.node.place scrapyd --pidfile=`\n")
    except OSError as error:
        sys.stderr.write(f"node: cannot start {' '.join(command)}: {error.strerror}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
