"""`python -m crawler.node.keeper COMMAND…`: becomes COMMAND as the user who owns the data, and leaves a *keeper*
beside it: the only process of a node that can start others as the users of `NODE_UIDS`.

It is started first, as root; of root's rights it needs only `CAP_SETUID` and `CAP_SETGID`. It shares two socket pairs
with COMMAND, which passes its ends on to Scrapyd. One is for questions, each with one answer. On the other one the
keeper reports processes that have ended.

The keeper acts for no user outside of `NODE_UIDS`. To act on a user's processes and folders it becomes that user, so
it needs no further right. It changes only its effective user; its real and saved user stay the same, so that the
user's processes can neither signal nor trace it. For the same reason the kernel would let it signal root's processes
as well. So it signals one process at a time, after checking that the process is that user's (`Processes`).
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import psutil

from crawler.node import process_tree, space
from gateway.contract.outbox import remove_tree
from gateway.errors import SettingsError
from gateway.process import own_children, restore_signals, run_and_end
from gateway.settings import NodeSettings
from gateway.subreaper import adopt_descendants, fork_minded

#: Variable with the descriptors of COMMAND's ends of the two socket pairs.
KEEPER = "DISCOVERYBOT_KEEPER"
#: Bytes of a question or an answer, and descriptors that go with one.
MOST = 1 << 18
MOST_FDS = 4
#: Users of `NODE_UIDS` cannot read what Scrapyd writes. Scrapyd's group can read what they write, to ship it.
UMASK, THEIR_UMASK = 0o027, 0o007
#: `PR_SET_NO_NEW_PRIVS` of Linux's prctl(2).
_SET_NO_NEW_PRIVS = 38
#: Exit code of a process that has measured others, and found that they hold more memory than the limit.
MORE = 3
#: Folders in which every user can leave files.
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - only what is the user's own is removed
#: How many threads and processes a user of `NODE_UIDS` can have for each process that its attempts can have.
_TASKS = 16
#: Seconds between two checks of a process that is just being started.
_MOMENT = 0.0005
#: Maximum number of seconds for looking through all that an attempt has written.
_LONGEST = 30


class KeeperError(RuntimeError):
    """The node cannot be started with these settings and rights."""


@contextmanager
def acting_as(uid: int, gid: int) -> Iterator[None]:
    """Have the rights of that user and group, and no others, during this block."""
    own_uid, own_gid = os.geteuid(), os.getegid()
    try:
        os.setegid(gid)
        os.seteuid(uid)
        yield
    finally:
        os.seteuid(own_uid)
        os.setegid(own_gid)


class Processes:
    """The processes of one user of `NODE_UIDS`."""

    def __init__(self, uid: int, others: frozenset[int]) -> None:
        if uid in others | {0, os.getuid()}:
            raise PermissionError(1, f"processes of user {uid} are not a project's")
        self._uid = uid

    def signal(self, pid: int, number: int) -> None:
        """Signal a process of this user. Raises `ProcessLookupError` if there is no such process."""
        if pid <= 0:
            raise ProcessLookupError(3, f"{pid} is no process")
        descriptor = os.pidfd_open(pid)
        try:
            # the descriptor was opened before this look: if another process has got the id, the signal fails
            if not self._has(psutil.Process(pid)):
                raise ProcessLookupError(3, f"{pid} is not user {self._uid}'s")
            with acting_as(self._uid, self._uid):
                signal.pidfd_send_signal(descriptor, number)
        except psutil.NoSuchProcess:
            raise ProcessLookupError(3, f"{pid} is gone") from None
        finally:
            os.close(descriptor)

    def find(self, folder: Path) -> int | None:
        with acting_as(self._uid, self._uid):
            return process_tree.find_leader(folder)

    def _has(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return tuple(process.uids()) == (self._uid,) * 3
        return False


class _Child(NamedTuple):
    #: Process id of the command that was started: the keeper's child is its minder.
    pid: int
    #: `None` for a process that works for the keeper itself.
    uid: int | None


class Keeper:
    """Answers Scrapyd until Scrapyd is gone. Processes that the keeper has started then continue."""

    def __init__(
        self, questions: socket.socket, ends: socket.socket, settings: NodeSettings, owner: os.stat_result
    ) -> None:
        self._questions, self._ends = questions, ends
        self._uids = settings.user_range
        #: A limit that the kernel enforces, because commands can fork faster than Scrapyd's checks notice.
        self._most_tasks = _TASKS * settings.node_slots * settings.crawl_max_processes
        #: Scrapyd's user and group; the group owns the files that the tailer ships.
        self._user, self._group = owner.st_uid, owner.st_gid
        #: Our children by process id.
        self._running: dict[int, _Child] = {}
        #: Users of zygotes: processes that a zygote has forked outlive it.
        self._forking: set[int] = set()
        self._untold: deque[bytes] = deque()
        self._woken, self._wake = os.pipe()
        self._answers: dict[str, Callable[..., Any]] = {
            "start": self._start,
            "make_folder": self._make_folder,
            "measure": self._measure,
            "open_up": lambda uid, paths, fds: self._act(uid, lambda: space.open_up(map(Path, paths)), fds[0]),
            "reaches": self._reaches,
            "signal": lambda uid, pid, number: self._processes(uid).signal(pid, number),
            "weigh": self._weigh,
            "find": lambda uid, folder: self._processes(uid).find(Path(folder)),
        }

    def serve(self) -> None:
        for fd in (self._woken, self._wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            waiting: list[socket.socket] = [self._ends] if self._untold else []
            sources: list[Any] = [self._questions, self._woken]
            readable, writable, _ = select.select(sources, waiting, [])
            if self._woken in readable:
                os.read(self._woken, 4096)
                self._reap()
            if self._untold and (writable or self._woken in readable):
                self._tell()
            if self._questions in readable and not self._answer():
                return

    def _answer(self) -> bool:
        """Answer one question; return false if Scrapyd is gone."""
        try:
            content, fds, _, _ = socket.recv_fds(self._questions, MOST, MOST_FDS, socket.MSG_CMSG_CLOEXEC)
            if not content:
                return False
            self._questions.send(json.dumps(self._result(json.loads(content), fds)).encode())
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def _result(self, question: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        try:
            if question["uid"] not in self._uids:
                raise PermissionError(1, f"user {question['uid']} is none of NODE_UIDS")
            more = {"fds": fds} if fds else {}
            return {"is": self._answers[question.pop("do")](**question, **more)}
        except (OSError, ValueError, psutil.Error) as error:
            return {"errno": getattr(error, "errno", None), "error": getattr(error, "strerror", None) or str(error)}
        finally:
            for fd in fds:
                os.close(fd)

    def _processes(self, uid: int) -> Processes:
        return Processes(uid, frozenset({self._user}))

    def _reaches(self, uid: int, path: str) -> None:
        with acting_as(uid, uid):
            os.stat(path)  # noqa: PTH116 - the path comes from a question

    def _start(self, uid: int, command: dict[str, Any], fds: Sequence[int]) -> int:
        """Start a command in a session of its own. `command["numbers"]` has one number for each of `fds`, which says
        what it is: 0 for a zygote's socket or a crawl's variables, 1 and 2 for the command's stdout and stderr, any
        other for the crawl's mark of its start.

        This does not wait for the command's `exec`, because its user could stop the process before that.
        """
        standard = dict(zip(command["numbers"], fds, strict=True))
        mark = next((fd for number, fd in standard.items() if number not in {0, 1, 2}), None)
        with acting_as(uid, uid):
            _require_access(command["args"][0], os.X_OK)
            _require_access(command["folder"], os.X_OK)
        start = _Start(uid, command["args"], command["env"], command["folder"], standard, mark, self._most_tasks)
        if mark is None and 0 in standard:
            # a zygote: the processes that it forks outlive it, and each has its own minder
            self._forking.add(uid)
            child = pid = self._fork(start.become)
        else:
            child, pid = fork_minded(lambda: run_and_end(start.become), lambda: acting_as(uid, uid))
        self._running[child] = _Child(pid, uid)
        _wait_for_owner(pid)
        return pid

    def _weigh(self, uid: int, limit: int, family: list[tuple[int, int]]) -> int:
        """The id of a process that finds out whether `family` holds more bytes than `limit`, which can take long."""
        shares = [process_tree.MemoryShare(*share) for share in family]
        return self._fork(lambda: _weigh(uid, limit, shares))

    def _fork(self, work: Callable[[], object]) -> int:
        """Do `work` in a child, and return its process id. Raises `OSError`."""
        pid = os.fork()
        if pid == 0:
            run_and_end(work)
        self._running[pid] = _Child(pid, None)
        return pid

    def _make_folder(self, uid: int, path: str, *, ours: bool = False) -> None:
        """Make a folder of this user, in which all new files belong to Scrapyd's group. With `ours`, make a folder of
        Scrapyd's user that besides Scrapyd only this user can read.
        """
        user, group, mode = (self._user, uid, 0o2750) if ours else (uid, self._group, 0o2770)
        with acting_as(user, group):
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)  # noqa: PTH102 - as it is one line below
            os.chmod(path, mode)  # noqa: PTH101

    def _measure(self, uid: int, paths: list[str], most: list[int], pids: list[int], fds: Sequence[int]) -> None:
        def measure() -> space.Space:
            elsewhere = space.shared_memory(uid)
            return space.measure([*map(Path, paths), *_left_by(uid)], space.Space(*most), pids, elsewhere)

        self._act(uid, measure, fds[0])

    def _act(self, uid: int, act: Callable[[], Any], answer: int) -> None:
        """Call `act` with the rights of this user alone, in a process that the user cannot signal because it is
        root's. The result is written to `answer`.
        """
        self._fork(lambda: _act(uid, act, answer))

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                child, status, usage = os.wait4(-1, os.WNOHANG)
                if not child:
                    break
                ended = self._running.pop(child, None)
                if ended is not None:
                    cpu, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
                    self._untold.append(json.dumps([ended.pid, status, cpu, memory]).encode())
                    self._clear_after(ended.uid)
        self._end_strays()

    def _clear_after(self, uid: int | None) -> None:
        """Once the last process that was started as this user has ended, remove what the user has left in folders
        that all users share.
        """
        if uid is not None and uid not in {*self._forking, *(other.uid for other in self._running.values())}:
            with suppress(OSError):  # no room for a process; the end of the next one tries again
                self._fork(lambda: _clear(uid))

    def _end_strays(self) -> None:
        """Kill children that we have not forked: they became ours when their minder ended. Processes that a zygote
        has forked are left alone, because they outlive it.
        """
        for stray in own_children() - self._running.keys():
            with suppress(psutil.Error, OSError):
                uid = psutil.Process(stray).uids().real
                if uid in self._uids and uid not in self._forking:
                    self._processes(uid).signal(stray, signal.SIGKILL)

    def _tell(self) -> None:
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._untold:
                self._ends.send(self._untold[0], socket.MSG_DONTWAIT)
                self._untold.popleft()


# --- what the keeper's children do


class _Start(NamedTuple):
    uid: int
    args: list[str]
    env: dict[str, str]
    folder: str
    #: Descriptors, by their numbers in the command's process.
    standard: dict[int, int]
    mark: int | None
    #: 0 is no limit.
    most_tasks: int

    def become(self) -> NoReturn:
        """Replace this process with the command. Raises `OSError`."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(self.standard.get(number, nowhere), number)
        mark = {}
        if self.mark is not None:
            os.set_inheritable(self.mark, True)  # noqa: FBT003 - takes no keyword
            mark["DISCOVERYBOT_MARK_FD"] = str(self.mark)
        os.setsid()
        os.umask(THEIR_UMASK)
        _limit_tasks(self.most_tasks)
        os.setresgid(self.uid, self.uid, self.uid)
        os.setresuid(self.uid, self.uid, self.uid)
        os.chdir(self.folder)
        restore_signals()
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the command would inherit that
        os.execve(self.args[0], self.args, {**self.env, **mark})  # noqa: S606 - what Scrapyd would start itself


def _limit_tasks(most: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if most and not 0 <= hard <= most:
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _require_access(path: str, mode: int) -> None:
    """Raises `OSError` unless the acting user has this access to `path`."""
    os.stat(path)  # noqa: PTH116 - the path comes from a question
    if not os.access(path, mode, effective_ids=True):
        raise PermissionError(13, f"Permission denied: {path}")


def _wait_for_owner(pid: int) -> None:
    """Wait until the process has changed to its user. Before that it cannot be signalled."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        while process.uids().real == os.getuid() and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(_MOMENT)


def _weigh(uid: int, limit: int, shares: list[process_tree.MemoryShare]) -> None:
    with acting_as(uid, uid):
        sys.exit(MORE if process_tree.use_more_than(limit, shares) else 0)


def _act(uid: int, act: Callable[[], Any], answer: int) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_LONGEST)
    with suppress(OSError), acting_as(uid, uid):
        os.write(answer, json.dumps(act()).encode())


def _clear(uid: int) -> None:
    """Remove what the user left in shared folders and System V IPC before this call."""
    began = time.time()
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    space.remove_system_v(uid, began)
    for path in _left_by(uid, before=began):
        remove_tree(path)


def _left_by(uid: int, before: float = math.inf) -> Iterator[Path]:
    """The user's files in folders that all users share."""
    for folder in SHARED_FOLDERS:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if found.st_uid == uid and found.st_ctime < before:
                        yield Path(entry.path)


def leave_keeper(settings: NodeSettings) -> dict[str, str]:
    """Start a keeper beside this process, and give up this process's rights. Returns the variables by which COMMAND
    finds the keeper. Raises `KeeperError`.
    """
    uids = settings.user_range
    if not uids:
        raise KeeperError("NODE_UIDS is not set: without it, start the command as it is")
    owner = _owner(settings)
    _require_right(uids)
    ctypes.CDLL(None).prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.setgroups([])
    questions, ends = (socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
    for pair in (questions, ends):
        for end in pair:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MOST)
    if os.fork() == 0:
        _keep(Keeper(questions[1], ends[1], settings, owner), questions[0], ends[0])
    os.umask(UMASK)
    os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
    os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)
    fds = [pair[0].detach() for pair in (questions, ends)]
    for fd in fds:
        os.set_inheritable(fd, True)  # noqa: FBT003 - takes no keyword
    return {KEEPER: ",".join(map(str, fds))}


def _keep(keeper: Keeper, *theirs: socket.socket) -> None:
    try:
        os.setsid()  # a terminal's Ctrl-C is meant for Scrapyd, not for the keeper
        adopt_descendants()
        for end in theirs:
            end.close()
        keeper.serve()
    finally:
        os._exit(0)


def _owner(settings: NodeSettings) -> os.stat_result:
    folder = (settings.nodes_dir or settings.discoverybot_home).absolute()
    try:
        owner = folder.stat()
    except OSError as error:
        raise KeeperError(f"{folder} cannot be used: {error.strerror}") from error
    if {owner.st_uid, owner.st_gid} & {0, *settings.user_range}:
        raise KeeperError(
            f"{folder} belongs to user {owner.st_uid} and group {owner.st_gid}, as whom Scrapyd would run: "
            "let it belong to one that is neither root nor of NODE_UIDS"
        )
    return owner


def _require_right(uids: range) -> None:
    if sys.platform != "linux":
        raise KeeperError("NODE_UIDS: only Linux can do this; leave it out")
    try:
        with acting_as(uids[0], uids[0]):
            pass
    except PermissionError:
        raise KeeperError("NODE_UIDS needs CAP_SETUID and CAP_SETGID: start as root, or leave it out") from None


def main(command: list[str]) -> int:
    """Become the command. Returns an exit code only if that fails."""
    try:
        # this process cannot read the secrets' file, but Scrapyd's user may: settings are loaded without it
        secrets = {name: os.environ.pop(name) for name in ("DISCOVERYBOT_SECRETS",) if name in os.environ}
        environment = {**os.environ, **secrets, **leave_keeper(NodeSettings.load())}
        os.execvpe(command[0], command, environment)  # noqa: S606 - the caller chooses the command
    except (SettingsError, KeeperError) as error:
        sys.stderr.write(f"node: {error}\n")
    except IndexError:
        sys.stderr.write("node: no command; say which, as in `python -m crawler.node.keeper scrapyd --pidfile=`\n")
    except OSError as error:
        sys.stderr.write(f"node: cannot start {' '.join(command)}: {error.strerror}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
