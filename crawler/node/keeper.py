"""`python -m crawler.node.keeper COMMAND…`: become COMMAND as the user to whom the data belong, and leave beside it
the one process of a node that may start others under the users of `NODE_UIDS`: the *keeper*.

It is started as root, of whose rights `CAP_SETUID` and `CAP_SETGID` are enough, before anything else is, and shares
two socket pairs with what COMMAND becomes, which end up in Scrapyd: one for questions, each with one answer, and one
on which it tells of ends. It acts under no user outside of `NODE_UIDS`. What it does to other users' processes and
folders it does as that user, so it needs no further right; and they cannot signal or trace it meanwhile, for its real
and saved user stays its own. For the same reason the kernel would let it signal root's processes as well: so it
signals one process at a time, and none of which it has not seen that it is that user's (`Processes`).
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
from gateway.process import adopt_descendants, fork_minded, own_children, restore_signals, run_and_end
from gateway.settings import NodeSettings, SettingsError

#: In the environment of what COMMAND becomes: its ends of the two socket pairs.
KEEPER = "DISCOVERYBOT_KEEPER"
#: Bytes of a question or an answer, and descriptors that go with one.
MOST = 1 << 18
MOST_FDS = 4
#: What Scrapyd writes is nothing to users of `NODE_UIDS`. What they write is open to its group: it is to be shipped.
UMASK, THEIR_UMASK = 0o027, 0o007
#: Of Linux's prctl(2).
_SET_NO_NEW_PRIVS = 38
#: Exit code of a process that has weighed others, and found them too heavy.
MORE = 3
#: Where anybody may leave files.
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - only what is the user's own is removed
#: Threads and processes that a user of `NODE_UIDS` may have for each process that its attempts may have.
_TASKS = 16
#: Seconds between two looks at what is just being started.
_MOMENT = 0.0005
#: Seconds for which a look at all that an attempt has written may take.
_LONGEST = 30


class KeeperError(RuntimeError):
    """The node cannot be started like this."""


@contextmanager
def acting_as(uid: int, gid: int) -> Iterator[None]:
    """Have the rights of that user and group, and no other."""
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
        """Raises `ProcessLookupError` unless there is a process of this number, and it is this user's."""
        if pid <= 0:
            raise ProcessLookupError(3, f"{pid} is no process")
        descriptor = os.pidfd_open(pid)
        try:
            # looked at while it is held: if its number is given to another in between, this one is gone
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
    #: Of what was started: the child itself minds it.
    pid: int
    #: `None` for one that does something for the keeper.
    uid: int | None


class Keeper:
    """Answers Scrapyd until that is gone; what it has started runs on."""

    def __init__(
        self, questions: socket.socket, ends: socket.socket, settings: NodeSettings, owner: os.stat_result
    ) -> None:
        self._questions, self._ends = questions, ends
        self._uids = settings.user_range
        #: The kernel's own bound for what forks faster than anybody looks.
        self._most_tasks = _TASKS * settings.node_slots * settings.crawl_max_processes
        #: Scrapyd's; the group owns what is to be shipped.
        self._user, self._group = owner.st_uid, owner.st_gid
        #: By process id: our children.
        self._running: dict[int, _Child] = {}
        #: Users of zygotes: what these have forked goes on without them.
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
        """Answer one question; false if nobody asks any more."""
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
            os.stat(path)  # noqa: PTH116 - as it is in the answers

    def _start(self, uid: int, command: dict[str, Any], fds: Sequence[int]) -> int:
        """Start a command in a session of its own. Its `numbers` say what `fds` are: 0 (a zygote's socket, or a
        crawl's variables), 1, 2, else the mark of a crawl.

        Nobody waits until it is what it was started as: its own user might stop it on the way.
        """
        standard = dict(zip(command["numbers"], fds, strict=True))
        mark = next((fd for number, fd in standard.items() if number not in {0, 1, 2}), None)
        with acting_as(uid, uid):
            _require_access(command["args"][0], os.X_OK)
            _require_access(command["folder"], os.X_OK)
        start = _Start(uid, command["args"], command["env"], command["folder"], standard, mark, self._most_tasks)
        if mark is None and 0 in standard:
            # what it forks is to outlive it, and is minded each by itself
            self._forking.add(uid)
            child = pid = self._fork(start.become)
        else:
            child, pid = fork_minded(lambda: run_and_end(start.become), lambda: acting_as(uid, uid))
        self._running[child] = _Child(pid, uid)
        _wait_for_owner(pid)
        return pid

    def _weigh(self, uid: int, limit: int, family: list[tuple[int, int]]) -> int:
        """The id of a process that finds out whether they hold more bytes, which may take a while."""
        shares = [process_tree.MemoryShare(*share) for share in family]
        return self._fork(lambda: _weigh(uid, limit, shares))

    def _fork(self, work: Callable[[], object]) -> int:
        """Raises `OSError`."""
        pid = os.fork()
        if pid == 0:
            run_and_end(work)
        self._running[pid] = _Child(pid, None)
        return pid

    def _make_folder(self, uid: int, path: str, *, ours: bool = False) -> None:
        """A folder of this user, in which all that is made belongs to Scrapyd's group as well. Or one of ours, that
        this user and no other can look into.
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
        """Do it with the rights of this user alone, in a process that no user can signal, as it is root's; what comes
        of it is written to `answer`.
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
        """Nothing of a user stays in folders that are everybody's once the last of what was started under it has
        ended.
        """
        if uid is not None and uid not in {*self._forking, *(other.uid for other in self._running.values())}:
            with suppress(OSError):  # no room for a process; it is looked after again when the next one ends
                self._fork(lambda: _clear(uid))

    def _end_strays(self) -> None:
        """What we have not forked became our child because what minded it is gone: it is nobody's any more. But what
        a zygote has forked goes on without that.
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


# --- what its children do


class _Start(NamedTuple):
    uid: int
    args: list[str]
    env: dict[str, str]
    folder: str
    #: Descriptors by the numbers that they are to have.
    standard: dict[int, int]
    mark: int | None
    #: 0 is no limit.
    most_tasks: int

    def become(self) -> NoReturn:
        """Be the command. Raises `OSError`."""
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
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores, and so would the command
        os.execve(self.args[0], self.args, {**self.env, **mark})  # noqa: S606 - what Scrapyd would start itself


def _limit_tasks(most: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if most and not 0 <= hard <= most:
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _require_access(path: str, mode: int) -> None:
    """Raises `OSError`."""
    os.stat(path)  # noqa: PTH116 - as it is in the questions
    if not os.access(path, mode, effective_ids=True):
        raise PermissionError(13, f"Permission denied: {path}")


def _wait_for_owner(pid: int) -> None:
    """Wait until the process is its user's, and can be signalled as such. Until then nobody can stop it."""
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
    """Remove what the user has left where anybody may leave something, but for what is newer than this."""
    began = time.time()
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    space.remove_system_v(uid, began)
    for path in _left_by(uid, before=began):
        remove_tree(path)


def _left_by(uid: int, before: float = math.inf) -> Iterator[Path]:
    """What the user has in folders that are everybody's."""
    for folder in SHARED_FOLDERS:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if found.st_uid == uid and found.st_ctime < before:
                        yield Path(entry.path)


def leave_keeper(settings: NodeSettings) -> dict[str, str]:
    """Leave a keeper beside this process, which gives up every right of its own. What the environment has to say of
    it. Raises `KeeperError`.
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
        os.setsid()  # a terminal's Ctrl-C is Scrapyd's to hear of
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
    """Never returns when all is well."""
    try:
        # they are closed to this process: Scrapyd's user may read them
        secrets = {name: os.environ.pop(name) for name in ("DISCOVERYBOT_SECRETS",) if name in os.environ}
        environment = {**os.environ, **secrets, **leave_keeper(NodeSettings.load())}
        os.execvpe(command[0], command, environment)  # noqa: S606 - who starts us says what it is
    except (SettingsError, KeeperError) as error:
        sys.stderr.write(f"node: {error}\n")
    except IndexError:
        sys.stderr.write("node: no command; say which, as in `python -m crawler.node.keeper scrapyd --pidfile=`\n")
    except OSError as error:
        sys.stderr.write(f"node: cannot start {' '.join(command)}: {error.strerror}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
