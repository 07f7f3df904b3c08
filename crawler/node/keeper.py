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
import os
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from crawler.node import process_tree
from gateway.settings import NodeSettings, SettingsError

#: In the environment of what COMMAND becomes: its ends of the two socket pairs.
KEEPER = "DISCOVERYBOT_KEEPER"
#: Bytes of a question or an answer, and descriptors that go with one.
MOST = 1 << 18
MOST_FDS = 4
#: What Scrapyd writes is nothing to users of `NODE_UIDS`. What they write is open to its group: it is to be shipped.
UMASK, THEIR_UMASK = 0o027, 0o007
#: Of Linux's prctl(2). A child subreaper becomes the parent of what its descendants leave behind.
_SET_NO_NEW_PRIVS, _SET_CHILD_SUBREAPER = 38, 36
#: How often it is looked for what is to end: it may be starting processes.
_LOOKS = 20
#: Seconds in which a process is what it was started as; its own user might stop it on the way.
_BEGIN = 5.0


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

    def kill_group(self, leader: int) -> None:
        self._kill(lambda: (process for process in psutil.process_iter() if _group(process) == leader))

    def kill_rest(self, pid: int, folder: Path) -> None:
        """SIGKILL to the spider, its group, and everything else that belongs to the attempt."""
        self._kill(lambda: self._family(pid, folder))
        self.kill_group(pid)

    def kill_below(self, parent: int) -> None:
        """SIGKILL to what this process, or what it has started, has started."""
        self._kill(lambda: psutil.Process(parent).children(recursive=True))

    def uses_more_than(self, limit: int, pid: int, folder: Path) -> bool:
        family = list(filter(self._has, self._family(pid, folder)))
        with acting_as(self._uid, self._uid):
            return process_tree.use_more_than(limit, family)

    def find(self, folder: Path) -> int | None:
        with acting_as(self._uid, self._uid):
            return process_tree.find_leader(folder)

    def _family(self, pid: int, folder: Path) -> list[psutil.Process]:
        with acting_as(self._uid, self._uid):
            return process_tree.members(pid, folder)

    def _kill(self, find: Callable[[], Iterable[psutil.Process]]) -> None:
        for _ in range(_LOOKS):
            found = [process for process in find() if self._has(process) and process_tree.lives(process)]
            for process in found:
                with suppress(ProcessLookupError):
                    self.signal(process.pid, signal.SIGKILL)
            if not found:
                return

    def _has(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return tuple(process.uids()) == (self._uid,) * 3
        return False


def _give_up(*_: object) -> None:
    raise TimeoutError(110, "it was not started in time")


def _group(process: psutil.Process) -> int | None:
    with suppress(ProcessLookupError):
        return os.getpgid(process.pid)
    return None


class Keeper:
    """Answers Scrapyd until that is gone; what it has started runs on."""

    def __init__(self, questions: socket.socket, ends: socket.socket, uids: range, owner: os.stat_result) -> None:
        self._questions, self._ends = questions, ends
        self._uids = uids
        #: Scrapyd's; the group owns what is to be shipped.
        self._user, self._group = owner.st_uid, owner.st_gid
        #: By process id: what runs, and the user of each.
        self._running: dict[int, tuple[subprocess.Popen[bytes], int]] = {}
        #: Users of zygotes: what these have forked goes on without them.
        self._forking: set[int] = set()
        self._untold: deque[bytes] = deque()
        self._woken, self._wake = os.pipe()
        self._answers: dict[str, Callable[..., Any]] = {
            "start": self._start,
            "make_folder": self._make_folder,
            "reaches": self._reaches,
            "signal": lambda uid, pid, number: self._processes(uid).signal(pid, number),
            "kill_group": lambda uid, pid: self._processes(uid).kill_group(pid),
            "kill_rest": lambda uid, pid, folder: self._processes(uid).kill_rest(pid, Path(folder)),
            "uses_more_than": lambda uid, limit, pid, folder: self._processes(uid).uses_more_than(
                limit, pid, Path(folder)
            ),
            "find": lambda uid, folder: self._processes(uid).find(Path(folder)),
        }

    def serve(self) -> None:
        for fd in (self._woken, self._wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGALRM, _give_up)
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
        """
        standard = dict(zip(command["numbers"], fds, strict=True))
        mark = [fd for number, fd in standard.items() if number not in {0, 1, 2}]
        if mark:
            command["env"]["DISCOVERYBOT_MARK_FD"] = str(mark[0])
        elif 0 in standard:
            self._forking.add(uid)
        with self._soon(uid), acting_as(uid, uid):  # who may enter the folder
            process = subprocess.Popen(  # noqa: S603 - what Scrapyd would start itself
                command["args"],
                env=command["env"],
                cwd=command["folder"],
                stdin=standard.get(0, subprocess.DEVNULL),
                stdout=standard[1],
                stderr=standard[2],
                pass_fds=mark,
                start_new_session=True,
                user=uid,
                group=uid,
                umask=THEIR_UMASK,
            )
        self._running[process.pid] = process, uid
        return process.pid

    @contextmanager
    def _soon(self, uid: int) -> Iterator[None]:
        """Raise `TimeoutError` rather than wait for ever for one that was stopped before it was started in full."""
        signal.setitimer(signal.ITIMER_REAL, _BEGIN)
        try:
            yield
        except TimeoutError:
            for child in psutil.Process().children():
                if child.pid not in self._running:
                    with suppress(ProcessLookupError):
                        self._processes(uid).signal(child.pid, signal.SIGKILL)
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _make_folder(self, uid: int, path: str) -> None:
        """A folder of this user, in which all that is made belongs to Scrapyd's group as well."""
        with acting_as(uid, self._group):
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)  # noqa: PTH102 - as it is one line below
            os.chmod(path, 0o2770)  # noqa: PTH101, S103 - its user's and Scrapyd's alone

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if not pid:
                    break
                process, uid = self._running.pop(pid, (None, None))
                if process is not None and uid is not None:
                    process.returncode = status
                    self._end_all_of(uid)
                    cpu, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
                    self._untold.append(json.dumps([pid, status, cpu, memory]).encode())

    def _end_all_of(self, uid: int) -> None:
        """Nothing of a user goes on here once the last of what was started under it has ended, however it hides."""
        if uid not in self._forking and not any(uid == other for _, other in self._running.values()):
            self._processes(uid).kill_below(os.getpid())

    def _tell(self) -> None:
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._untold:
                self._ends.send(self._untold[0], socket.MSG_DONTWAIT)
                self._untold.popleft()


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
        _keep(Keeper(questions[1], ends[1], uids, owner), questions[0], ends[0])
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
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
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
