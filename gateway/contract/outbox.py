"""A crawl node's outbox: the names and formats of the files that one attempt leaves behind.

The files of an attempt are in `<outbox>/<job id>-<attempt>/`. Each file has one writer. After a crash, a reader can
see from the files alone what happened. The folder belongs to Scrapyd. If each project has a system user of its own,
this user cannot change the folder, nor replace or remove the entries directly in it:

=================  ===========================================================================================
`spec.json`        what to run; written by `schedule.json` before the attempt is queued
`code.json`        the egg and environment to keep for it (`crawler/node/unpacking.py`); written by the launcher
`started`          made exclusively by the launcher, `flock`ed by the spider process for as long as it lives
`crawl.log`        stdout, stderr and the log of the spider process, which has it open
`items.jsonl`      one item per line, flushed when its request is done
`requests.jsonl`   one line per request, flushed when that is done; written by `crawler/report/request_record.py`
`stopping`         why it is stopped (`timeout`, `cancel`, …); written exclusively, before it is asked to stop
`exit.json`        how the process ended; written exclusively, by the launcher or, if that was killed, the tailer
`shipped.json`     the tailer's checkpoints
`files/`           the working folder of a deployed project's spider (`written_files.py`)
`state/`           files that the spider process replaces and removes; an attempt of protocol 2 has no `state/`, and
                   these files are directly in its folder
`tmp/`             temporary files of its processes; removed at its end
=================  ===========================================================================================

In `state/`, which belongs to the project, like `files/` and `tmp/`:

=================  ===========================================================================================
`frontier`         the requests that are still to be made, for an attempt that continues this one; removed once that
                   attempt has its own frontier, or nothing is left (format: `crawler/frontier/journal.py`)
`progress.json`    rewritten about once a second
`active`           touched about once a second while something happens in the crawl, or it waits for its turn
`report.json`      Scrapy's own account of how it ended, written by the add-on
=================  ===========================================================================================

A spider runs users' code, and the code can write to these folders. In `state/`, and everywhere if projects have no
system users of their own, each of these names may be a FIFO on which a reader would wait forever, a link to another
user's file, or an endless file. So all code opens, reads, writes and removes these files only by the functions at the
end of this module.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import secrets
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from gateway.crash_points import state_change

SPEC = "spec.json"
CODE = "code.json"
STARTED = "started"
LOG = "crawl.log"
ITEMS = "items.jsonl"
REQUESTS = "requests.jsonl"
FRONTIER = "frontier"
PROGRESS = "progress.json"
ACTIVE = "active"
REPORT = "report.json"
STOPPING = "stopping"
EXIT = "exit.json"
SHIPPED = "shipped.json"
FILES = "files"
STATE = "state"
#: Beside the attempts: what this node can run (`[SpiderInfo]`), shipped to the `spiders` collection.
CATALOG = "catalog.json"
#: Beside the attempts: `{"moment", "steady"}`, MongoDB's time and the machine's monotonic clock in seconds at that
#: moment. The tailer writes it with each heartbeat, because the clock of the node may be wrong.
CLOCK = "clock.json"
#: Beside the attempts, written when Scrapyd starts: `{"chromium", "protocols"}`, the path of the browser that renders
#: pages here, or null, and the `PROTOCOLS` of that Scrapyd.
BROWSER = "browser.json"

#: Beside the attempts: the eggs that were deployed with Scrapyd's own tools (`Deployments`), written by Scrapyd; and
#: the last of them that the tailer has reported to the platform, written by the tailer. Eggs that the platform itself
#: sends are in neither file.
DEPLOYED = "deployed.json"
NOTED = "noted.json"
#: The argument of `addversion.json` that marks an egg as sent by the platform itself.
BY_PLATFORM = "platform"
#: Beside the attempts: the id of this folder, see `instance_of`.
INSTANCE = "instance"

#: The versions of the protocol between the platform and a node, which consists of these files and the platform's
#: requests to Scrapyd. 1 is the protocol of release 0.1.0. 2 adds settings, variables and expectations of crawls. 3
#: adds the folder `state/` of an attempt, its allowance of its key's budget, and `fetch.respect` of crawls. A node
#: reports the versions that it supports, and gets work if the platform supports one of them. An older tailer beside a
#: Scrapyd of version 3 ships everything except the progress of running attempts.
PROTOCOLS = frozenset({1, 2, 3})

#: Format of the log, set by the crawler's add-on: milliseconds and zone in every head.
LOG_FORMAT = "%(asctime)s.%(msecs)03dZ [%(name)s] %(levelname)s: %(message)s"
LOG_DATEFORMAT = "%Y-%m-%dT%H:%M:%S"

#: The largest size, in bytes, of each file that is read as a whole. Most of these files have a few hundred bytes.
LIMITS = {SPEC: 16 << 20, EXIT: 8 << 20, STARTED: 4 << 10, STOPPING: 1 << 10, PROGRESS: 64 << 10, CATALOG: 160 << 20}
MAX_RECORD = 2 << 20
#: Of the hosts that a crawl asks, its progress names this many, the first ones.
MOST_HOSTS = 20
#: The prefix of the stats that count what an attempt has used of its allowance.
SPENT = "discoverybot/spent_"
#: The stat that replaces all others if they are too long: how many there were.
STATS_LEFT_OUT = "discoverybot/stats_left_out"
#: The files that the spider's own process writes.
_SPIDERS = frozenset({LOG, ITEMS, REQUESTS, FRONTIER, PROGRESS, ACTIVE, REPORT})

#: Whose fault a refusal is, because a fault of the node must not count against the job, nor the other way round.
Fault = Literal["node", "job"]
#: Values of `stopping` and `stopped_by`.
STOP_REASONS = frozenset(
    {"timeout", "memory", "processes", "log", "files", "entries", "records", "disk", "stall"}
    | {"cancel", "pause", "shutdown"}
)
#: The reasons for a stop that a request to `cancel.json` can name; and for each, the text of the exit report of an
#: attempt that was not started yet.
StopReason = Literal["cancel", "pause"]
WITHDRAWN: dict[StopReason, str] = {"cancel": "cancelled", "pause": "paused"}

#: Finish reason of a crawl that was ended early because it had broken its expectations (`Expect`).
EXPECTATION_BROKEN = "expectation_broken"
#: Stat: pages that were not fetched, because their host requires a license and the crawl respects that.
UNLICENSED = "discoverybot/unlicensed"
#: Scrapy's finish reason of a crawl that was stopped by its node.
INTERRUPTED = "shutdown"
#: Finish reason of a crawl that its own code has ended: `reactor.stop()`, `crawler.stop()`.
STOPPED_ITSELF = "stopped_itself"
#: Finish reason of a crawl that has used all bytes that were left of its key's budget.
BUDGET_BYTES = "budget_bytes"
#: Finish reason of a crawl that could not write its items, because the node's disk is full or broken.
ITEMS_LOST = "items_not_writable"
#: Finish reason of a crawl that an exception ended, mostly while its components were built or opened.
BROKE_DOWN = "broke_down"
#: Kinds of errors in a report that are not about a request: `start()` has raised the error, the error has ended the
#: crawl, or an item could not be processed or written.
ErrorKind = Literal["start", "breakdown", "item"]
#: The facts of an error in a report. `reason`: text; `code`: a `Reason`, which older nodes do not send; `kind`: an
#: `ErrorKind`, may be absent; `permanent`: present if the next attempt would have the same error; `variable`: the
#: name of the environment variable that was missing.
ERROR_FACTS = ("url", "reason", "code", "kind", "permanent", "variable")

_ATTEMPT_ID = re.compile(r"([0-9a-f]{32})-([1-9][0-9]{0,5})")


class AttemptId(NamedTuple):
    """Identifies one attempt of one job. It is also the job id in Scrapyd, and the name of the
    folder in the outbox.
    """

    job_id: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.job_id}-{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """`None` for a text that is not one of our ids, so `../../x` can never become a path."""
        match = _ATTEMPT_ID.fullmatch(text)
        return cls(match[1], int(match[2])) if match else None


@state_change("node.name_instance")
def instance_of(node_dir: Path) -> str:
    """The id of this folder, which differs from the ids of all other folders that ever had the node's name. The first
    process that asks for the id makes it. Raises `OSError`.
    """
    path = node_dir / INSTANCE
    if not is_there(path):
        node_dir.mkdir(parents=True, exist_ok=True)
        write_exclusively(path, uuid.uuid4().hex.encode())
    return read_file(path).decode()


def attempt_dir(outbox: Path, attempt: AttemptId) -> Path:
    return outbox / str(attempt)


def state_dir(folder: Path) -> Path:
    """The folder of an attempt's progress, report and frontier; for an attempt of protocol 2, `folder` itself."""
    return folder / STATE if is_there(folder / STATE) else folder


def whole_text(value: Any) -> Any:
    """A value from JSON without half surrogate pairs, which JSON can contain, but UTF-8 and BSON cannot."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {whole_text(key): whole_text(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [whole_text(inner) for inner in value]
    return value


def stopping_reason(folder: Path) -> str | None:
    """Why the attempt was asked to stop, if it was."""
    with suppress(OSError, ValueError):
        reason = read_file(folder / STOPPING).decode()
        return reason if reason in STOP_REASONS else None
    return None


def is_locked(folder: Path) -> bool:
    """Whether a living process holds the attempt's started mark; false where there is none."""
    return is_held(folder / STARTED)


def is_held(lock: Path) -> bool:
    """Whether a living process holds the `flock` on this file; false where there is none."""
    try:
        fd = open_file(lock)
    except OSError:
        return False
    try:
        # a shared lock, so that two processes that check at the same time do not see each other's lock
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def open_lock(path: Path) -> int:
    """A descriptor of the file at `path`, to be `flock`ed; the file is made if it is missing. Only its owner may open
    it, because every user who can open a file can hold its lock forever. Raises `OSError`.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)  # a file of an older version might be open to others
    except BaseException:
        os.close(fd)
        raise
    return fd


# --- opening, reading, writing and removing files that a spider may have changed


class HostileFileError(OSError):
    """The file is not of the expected kind; the message names it and its kind. A retry will hardly help."""

    def __str__(self) -> str:
        return str(self.strerror)


def is_there(path: Path) -> bool:
    """Whether the name is taken, even by a broken link: then no process can make the file."""
    return os.path.lexists(path)


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the regular file at `path`; neither the file nor the attempt's folder may be a link.

    Never blocks. Raises `FileNotFoundError`; `HostileFileError` if it is not a readable regular file; `OSError`.
    """
    careful = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with _folder_of(path) as folder:
        try:
            fd = os.open(path.name, flags | careful, 0o644, dir_fd=folder)
        except OSError as error:
            raise with_reason(error, path) from error
        try:
            _require_regular(os.fstat(fd), os.fstat(folder), path)
            os.set_blocking(fd, True)
        except BaseException:
            os.close(fd)
            raise
    return fd


def read_file(path: Path, limit: int | None = None) -> bytes:
    """The whole file, if it has at most `limit` bytes; the default is in `LIMITS`, else `MAX_RECORD`.

    Raises what `open_file` does, and `HostileFileError` for a file that is too large.
    """
    limit = LIMITS.get(path.name, MAX_RECORD) if limit is None else limit
    with os.fdopen(open_file(path), "rb") as file:
        # read one byte more than allowed: a file that grows while it is read has no other end
        data = file.read(limit + 1)
    if len(data) > limit:
        raise HostileFileError(errno.EFBIG, f"{path.name} is larger than {limit} bytes")
    return data


def read_part(path: Path, offset: int, size: int) -> bytes:
    """Up to `size` bytes from `offset` on; no bytes if there is no file yet. Raises what `open_file` does."""
    with suppress(FileNotFoundError), os.fdopen(open_file(path), "rb", buffering=0) as file:
        return os.pread(file.fileno(), size, offset) if size > 0 else b""
    return b""


def file_size(path: Path) -> int:
    """The size of the file in bytes; 0 if there is no file yet. Raises what `open_file` raises."""
    with suppress(FileNotFoundError), os.fdopen(open_file(path), "rb", buffering=0) as file:
        return os.fstat(file.fileno()).st_size
    return 0


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, in one piece if the system allows it. Raises `OSError`; a part may be written then."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


def write_atomically(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace `path`: readers see the old content or the new, never half of it. `mode` says who may read a file that
    holds secrets. Raises `OSError`.
    """
    with _folder_of(path) as folder, _written(folder, path.name, data, mode) as temporary:
        os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)


def write_exclusively(path: Path, data: bytes) -> bool:
    """Create `path` with its full content unless it exists. Returns whether it was created. Raises `OSError`."""
    with _folder_of(path) as folder, _written(folder, path.name, data) as temporary:
        try:
            os.link(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            return False
    return True


#: Room for an attempt's exit report, in bytes and as an inode, so that its end can be reported even on a full disk.
ROOM, ROOM_BYTES = ".room", 64 << 10
#: Errors that mean a full disk.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def reserve_room(folder: Path) -> None:
    """Reserve room for the attempt's exit report. Raises `OSError`."""
    write_exclusively(folder / ROOM, bytes(ROOM_BYTES))


def write_into_room(path: Path, data: bytes) -> bool:
    """Like `write_exclusively`, but into the room that was reserved beside `path`, which is used up by this. `data`
    has at most `ROOM_BYTES`. Raises `FileNotFoundError` if no room was reserved, `OSError`.
    """
    with _folder_of(path) as folder:
        own = f".{path.name}.{secrets.token_hex(8)}"
        os.rename(ROOM, own, src_dir_fd=folder, dst_dir_fd=folder)
        try:
            with os.fdopen(open_file(path.with_name(own), os.O_WRONLY), "wb", buffering=0) as file:
                file.write(data)
                file.truncate()
            os.link(own, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            return False
        finally:
            os.unlink(own, dir_fd=folder)
    return True


def free_inodes(path: Path) -> float:
    """How many files can still be made on its disk; infinity if the file system has no limit. Raises `OSError`."""
    found = os.statvfs(path)
    return found.f_favail if found.f_files else math.inf


def remove_tree(path: Path, *, within: float = 60.0) -> bool:
    """Remove the folder and all that is in it, at any depth and with any permissions; returns whether nothing is
    left. After `within` seconds, for example because a process still fills the folder, the rest is left for another
    call.

    No link is followed. Deeper folders are first moved up, so neither the nesting of calls nor the number of open
    descriptors grows with the depth.
    """
    with suppress(OSError), _folder_of(path) as parent:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            _remove_cleared(path.name, parent, None, time.monotonic() + within)
        else:
            os.unlink(path.name, dir_fd=parent)
    return not is_there(path)


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def _folder_of(path: Path) -> Iterator[int]:
    """A descriptor of the folder that `path` is in. Neither an attempt's folder nor the `state/` in it may be a link,
    because the spider might control both and their names.
    """
    parent = path.parent
    with ExitStack() as opened:
        top = _opened(parent.parent, opened) if parent.name == STATE and AttemptId.parse(parent.parent.name) else None
        yield _opened(parent, opened, top)


def _opened(folder: Path, opened: ExitStack, top: int | None = None) -> int:
    """A descriptor of the folder, which is closed with `opened`. If it is an attempt's folder without rights for its
    owner, the rights are restored.
    """
    own = top is not None or AttemptId.parse(folder.name) is not None
    name, flags = folder if top is None else folder.name, _FOLDER | (os.O_NOFOLLOW if own else 0)
    try:
        try:
            fd = os.open(name, flags, dir_fd=top)
        except PermissionError:
            if not own:
                raise
            _open_up(name, top)
            fd = os.open(name, flags, dir_fd=top)
    except OSError as error:
        raise with_reason(error, folder) from error
    opened.callback(os.close, fd)
    found = os.fstat(fd)
    if own and found.st_uid == os.geteuid() and found.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(fd, stat.S_IMODE(found.st_mode) | stat.S_IRWXU)
    return fd


@contextmanager
def _written(folder: int, name: str, data: bytes, mode: int | None = None) -> Iterator[str]:
    """A new file beside `name`, with an unpredictable name; removed at the end unless it was renamed."""
    temporary = f".{name}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o600 if mode else 0o666, dir_fd=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            if mode:
                os.fchmod(fd, mode)
            file.write(data)
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)


#: By the error of an `open` that must not block: what is there instead of a file.
_INSTEAD = {
    errno.ELOOP: "is a link",
    errno.EMLINK: "is a link",
    errno.ENXIO: "is a FIFO or a socket",
    errno.EOPNOTSUPP: "is a socket",
    errno.EISDIR: "is a folder",
    errno.ENOTDIR: "is no folder",
    errno.EACCES: "may not be opened",
    errno.EPERM: "may not be opened",
    errno.EWOULDBLOCK: "is leased to another process",
}
_KINDS = {stat.S_IFDIR: "is a folder", stat.S_IFIFO: "is a FIFO", stat.S_IFSOCK: "is a socket"}


def with_reason(error: OSError, path: Path) -> OSError:
    instead = _INSTEAD.get(error.errno or 0)
    return HostileFileError(error.errno, f"{path.name} {instead}") if instead else error


def _require_regular(found: os.stat_result, folder: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise HostileFileError(errno.EINVAL, f"{path.name} {_KINDS.get(stat.S_IFMT(found.st_mode), 'is a device')}")
    if path.name in _SPIDERS and found.st_nlink > 1 and found.st_uid != folder.st_uid:
        raise HostileFileError(errno.EINVAL, f"{path.name} is a hard link to a file of another user")


def _remove_cleared(name: str, parent: int, top: int | None, deadline: float) -> None:
    """Remove the folder `name`. Its subfolders are first moved up to `top`; without `top`, this folder is the top."""
    _open_up(name, parent)
    folder = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    try:
        while _clear(folder, top, deadline):
            pass
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=parent)


def _clear(folder: int, top: int | None, deadline: float) -> bool:
    """Remove the contents of `folder`, or move them up; returns whether there were any. Raises `OSError`."""
    found = False
    with os.scandir(folder) as entries:
        for entry in entries:
            found = True
            if time.monotonic() > deadline:
                raise TimeoutError
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
            elif top is None:
                _remove_cleared(entry.name, folder, folder, deadline)
            else:
                _open_up(entry.name, folder)
                os.rename(entry.name, secrets.token_hex(16), src_dir_fd=folder, dst_dir_fd=top)
    return found


def _open_up(name: str | Path, folder: int | None) -> None:
    """Give the owner of the folder all rights to it. Does nothing if the owner is not this process's user."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if found.st_uid != os.geteuid():
        return
    mode = stat.S_IMODE(found.st_mode) | stat.S_IRWXU
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(name, mode, dir_fd=folder, follow_symlinks=False)
        return
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        Path(f"/proc/self/fd/{fd}").chmod(mode)
    finally:
        os.close(fd)
