"""Other users of the machine on which `discoverybot up` runs read nothing of it, nor do its stores answer them."""

from __future__ import annotations

import os
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import bson
import psutil
import pytest
from sites.server import Site
from stack import Stack, running_stack

pytestmark = [pytest.mark.stack]
NOBODY = 65534


class Shared(NamedTuple):
    """A stack in a folder that everybody could look into before, as earlier versions left it."""

    stack: Stack
    #: What a link in the folder leads to.
    outside: Path


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    # not under pytest's own folder, into which nobody else can look
    with tempfile.TemporaryDirectory(prefix="privacy-") as parent, Site() as site:
        Path(parent).chmod(0o755)
        home, outside = Path(parent, "home"), Path(parent, "outside")
        old = home / "node" / "outbox" / "old"
        old.mkdir(parents=True)
        (old / "crawl.log").write_text("a log\n")
        outside.write_text("somebody's\n")
        (old / "link").symlink_to(outside)
        for path in (home, *home.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        with running_stack(home) as stack:
            stack.wait_final(stack.crawl(f"{site.url}/tree/3"))
            yield Shared(stack, outside)


def test_the_state_folder_and_all_in_it_are_for_its_owner_alone(shared: Shared) -> None:
    home = shared.stack.home
    modes = {path: path.lstat().st_mode for path in (home, *home.rglob("*")) if not path.is_symlink()}
    assert home / "node" / "outbox" / "old" / "crawl.log" in modes
    assert not {path: oct(mode) for path, mode in modes.items() if stat.S_IMODE(mode) & 0o077}
    assert stat.S_IMODE(shared.outside.stat().st_mode) == 0o644


def test_the_stores_tell_nothing_without_their_passwords(shared: Shared) -> None:
    for url in (shared.stack.ready["redis_url"], shared.stack.ready["broker_url"]):
        assert b"-NOAUTH" in _said(url, b"KEYS *\r\n")
    assert b"requires authentication" in _said(shared.stack.ready["mongo_uri"], _find("keys"))


def test_no_command_line_holds_a_password(shared: Shared) -> None:
    passwords = {urlsplit(shared.stack.ready[name]).password or "" for name in ("redis_url", "mongo_uri")}
    passwords.add(shared.stack.ready["scrapyd_password"])
    assert all(passwords)
    lines = [" ".join(one.cmdline()) for one in psutil.Process(shared.stack.process.pid).children(recursive=True)]
    assert any("valkey" in line or "redis" in line for line in lines)
    assert not [line for line in lines if any(password in line for password in passwords)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_can_look_into_nothing(shared: Shared) -> None:
    home, mongo = shared.stack.home, shared.stack.ready["pids"]["mongo"]
    for path in (home, home / "ready.json", home / "redis-password", home / "node", f"/proc/{mongo}/environ"):
        assert "PermissionError" in _opened_by_nobody(path), path
    assert not _opened_by_nobody(shared.outside)


#: Become another user, then open a file or look into a folder.
_OPEN = f"""
import os, sys
os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
fd = os.open(sys.argv[1], os.O_RDONLY)
"""


def _opened_by_nobody(path: Path | str) -> str:
    """What it complains of."""
    command = [sys.executable, "-I", "-c", _OPEN, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=90).stderr


def _said(url: str, question: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=60) as connection:
        connection.sendall(question)
        return connection.recv(4096)


def _find(collection: str) -> bytes:
    body = bytes(5) + bson.encode({"find": collection, "$db": "discoverybot"})
    return struct.pack("<iiii", 16 + len(body), 1, 0, 2013) + body
