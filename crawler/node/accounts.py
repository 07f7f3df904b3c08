"""The system users as which the processes of projects run, and how Scrapyd acts on these processes and their files.

Without `NODE_UIDS` all processes run as Scrapyd's own user. With it each project has a user of its own, for ever.
Scrapyd has no rights over other users' processes and folders, so it asks the keeper (`crawler.node.keeper`).
"""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from crawler.node import process_tree, space
from crawler.node.keeper import KEEPER, MORE, MOST
from crawler.node.reactor import reactor
from crawler.node.space import Space
from crawler.node.unpacking import UNPACKED
from crawler.node.venv_builder import VENVS
from gateway.contract.outbox import (
    FILES,
    ITEMS,
    REQUESTS,
    STATE,
    is_there,
    open_lock,
    remove_tree,
    reserve_room,
    state_dir,
    write_atomically,
)
from gateway.crash_points import state_change
from gateway.settings import NodeSettings

log = Logger()

#: Which user each project has: `{"bookshop": 20001}`.
_USERS, _LOCK = "uids.json", "uids.lock"
#: Seconds between two attempts to remove what the tailer could not.
_SWEEP = 60.0
#: Folder inside an attempt's folder for temporary files, which nobody needs once the attempt has ended.
TEMPORARY = "tmp"
#: Prefix of folders that are to be removed (the tailer uses it, too), and of temporary folders in use.
_REMOVED, _WORK = ".removed-", ".work-"
#: Signals that a spider must not ignore. Python ignores some, and a shell's background job ignores SIGINT.
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class EndedProcess(Protocol):
    """An object that is called when its process has ended."""

    pid: int

    def ended(self, status: int, cpu_seconds: float, peak_memory_bytes: int) -> None:
        """The process has ended; `status` is its wait status."""


class Account:
    """Scrapyd's own user."""

    uid: int | None = None

    def environment(self, _folder: Path) -> dict[str, str]:
        """Variables for processes of this account, in addition to those that all processes get."""
        return {}

    def start(self, args: list[str], env: Mapping[str, str], fds: Mapping[int, int], mark: int | None = None) -> int:
        """Start `args` in a session of its own and return the process id. The keys of `fds` are the numbers that the
        descriptors have in the new process; `mark` keeps its number. Raises `OSError`.
        """
        copies = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in fds.items()]
        if mark is not None:
            os.set_inheritable(mark, True)  # noqa: FBT003 - takes no keyword
        try:
            return os.posix_spawn(
                args[0],
                args,
                env,
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), *copies],
                setsid=True,
                setsigmask=(),
                setsigdef=_DEFAULT_SIGNALS,
            )
        finally:
            if mark is not None:
                os.set_inheritable(mark, False)  # noqa: FBT003 - takes no keyword

    def signal(self, pid: int, number: int) -> None:
        """Send the signal to one process. Raises `ProcessLookupError`."""
        os.kill(pid, number)

    def kill_group(self, pid: int) -> None:
        process_tree.kill_group(pid)

    def kill_rest(self, pid: int | None, folder: Path) -> None:
        process_tree.kill_rest(pid, folder)

    def weigh(self, limit: int, family: list[process_tree.MemoryShare]) -> Deferred[bool]:
        """Whether the processes of `family` together hold more than `limit` bytes of memory."""
        return deferToThread(process_tree.use_more_than, limit, family)

    def find_leader(self, folder: Path) -> int | None:
        return process_tree.find_leader(folder)

    def make_folder(self, folder: Path) -> None:
        """Make an attempt's folder and everything in it that the attempt can write to. Raises `OSError`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / STATE).mkdir(exist_ok=True)
        reserve_room(folder)

    def make_temporary(self, folder: Path) -> None:
        """Make the folder for temporary files in the attempt's `folder`. Raises `OSError`."""
        (folder / TEMPORARY).mkdir(exist_ok=True)

    def measure(self, folder: Path, most: Space, pids: list[int]) -> Deferred[Space | None]:
        """The disk space that an attempt takes (see `space.measure`), or `None` if it cannot be measured now."""
        measured: Deferred[Space | None] = deferToThread(lambda: space.measure(folder.iterdir(), most, pids))
        return measured.addErrback(lambda _: None)

    def open_up(self, _folder: Path) -> Deferred[None]:
        """Let Scrapyd and the tailer read and remove all that an attempt has written."""
        return succeed(None)

    @contextmanager
    def folder_for_a_moment(self) -> Iterator[Path]:
        """A folder for a process that belongs to no attempt. It is removed afterwards, in the background."""
        folder = Path(mkdtemp(prefix="listing-"))
        try:
            yield folder
        finally:
            deferToThread(remove_tree, folder)


class KeeperClient:
    """Scrapyd's end of the connection to the keeper. A node cannot work without its keeper: Scrapyd ends with it.

    `ask` waits for the answer without a time limit: after a time-out nobody would know whether the keeper has acted,
    and so the question could not be repeated. Answers come soon, because the keeper never waits for a project's code.
    """

    def __init__(self, questions: int, ends: int) -> None:
        self._questions, self._ends = socket.socket(fileno=questions), socket.socket(fileno=ends)
        self._waiting: dict[int, EndedProcess] = {}
        for end in (self._questions, self._ends):
            end.set_inheritable(False)
        self._ends.setblocking(False)  # noqa: FBT003 - takes no keyword

    def ask(self, uid: int, do: str, fds: tuple[int, ...] = (), **args: Any) -> Any:
        """Have the keeper do something as user `uid`, and return its answer. Raises `OSError`."""
        question = json.dumps({"uid": uid, "do": do, **args}).encode()
        if len(question) > MOST:
            raise OSError(7, "too long to be asked")
        try:
            socket.send_fds(self._questions, [question], fds)
            answer = json.loads(self._questions.recv(MOST) or b"null")
        except OSError as error:
            self._lost(str(error))
        if answer is None:
            self._lost("it is gone")
        if "error" in answer:
            raise OSError(answer["errno"] or 5, answer["error"])
        return answer["is"]

    def watch(self, process: EndedProcess) -> None:
        self._waiting[process.pid] = process

    def fileno(self) -> int:
        return self._ends.fileno()

    def doRead(self) -> None:  # noqa: N802 - Twisted's name
        with suppress(BlockingIOError):
            while content := self._ends.recv(MOST):
                pid, status, cpu, memory = json.loads(content)
                if (process := self._waiting.pop(pid, None)) is not None:
                    process.ended(status, cpu, memory)
            self._lost("it is gone")

    def connectionLost(self, _reason: object) -> None:  # noqa: N802 - Twisted's name
        """The reactor calls this. There is nothing to do."""

    def logPrefix(self) -> str:  # noqa: N802 - Twisted's name
        return "keeper"

    def _lost(self, why: str) -> None:
        log.critical("the keeper does not answer ({why}): without it no spider can be started or ended", why=why)
        os._exit(70)


class _Weighing:
    """A process that measures the memory of others; its exit code is the answer. If it is killed, that means "not too
    much".
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.answer: Deferred[bool] = Deferred()

    def ended(self, status: int, _cpu_seconds: float, _peak_memory_bytes: int) -> None:
        self.answer.callback(os.waitstatus_to_exitcode(status) == MORE)


class KeptAccount(Account):
    """A user of `NODE_UIDS`."""

    def __init__(self, keeper: KeeperClient, uid: int, outbox: Path) -> None:
        self.uid: int = uid
        self.keeper = keeper
        self._outbox = outbox

    def environment(self, folder: Path) -> dict[str, str]:
        return {"HOME": str(state_dir(folder))}

    def start(
        self,
        args: list[str],
        env: Mapping[str, str],
        fds: Mapping[int, int],
        mark: int | None = None,
        folder: Path | None = None,
    ) -> int:
        every = {**fds, **({} if mark is None else {mark: mark})}
        command = {"args": args, "env": dict(env), "numbers": list(every), "folder": str(folder or Path.cwd())}
        pid: int = self._ask("start", tuple(every.values()), command=command)
        return pid

    def signal(self, pid: int, number: int) -> None:
        self._ask("signal", pid=pid, number=number)

    def kill_group(self, pid: int) -> None:
        """Kill the leader alone. Its minder kills the rest; it is always there, because it runs as root."""
        with suppress(ProcessLookupError):
            self.signal(pid, signal.SIGKILL)

    def kill_rest(self, pid: int | None, _folder: Path) -> None:
        if pid is not None:
            self.kill_group(pid)

    def weigh(self, limit: int, family: list[process_tree.MemoryShare]) -> Deferred[bool]:
        """The keeper starts another process for this, because it can take long."""
        question = _Weighing(self._ask("weigh", limit=limit, family=family))
        self.keeper.watch(question)
        return question.answer

    def find_leader(self, folder: Path) -> int | None:
        pid: int | None = self._ask("find", folder=str(folder))
        return pid

    def make_folder(self, folder: Path) -> None:
        """The folder is Scrapyd's own, and the project's user can read it. It is not made under another name first,
        because those who watch the outbox would not notice what happens in a renamed folder.
        """
        if is_there(folder) and folder.lstat().st_uid != os.geteuid():
            return  # made by protocol 2
        self._ask("make_folder", path=str(folder), ours=True)
        for name in (STATE, FILES):
            if not is_there(folder / name):
                _give(self._make_work(), folder / name)
        for name in (ITEMS, REQUESTS):
            # its group is the user's own: they can write to it, and neither remove nor replace it
            (folder / name).touch()
            (folder / name).chmod(0o660)
        reserve_room(folder)

    def make_temporary(self, folder: Path) -> None:
        if not is_there(folder / TEMPORARY):
            _give(self._make_work(), folder / TEMPORARY)

    def measure(self, folder: Path, most: Space, pids: list[int]) -> Deferred[Space | None]:
        """Includes what the project's user has left in folders that anybody can write to."""
        measured: Deferred[Space | None] = self._look("measure", folder, most=most, pids=pids)
        return measured.addCallbacks(lambda found: found and Space(*found), lambda _: None)

    def open_up(self, folder: Path) -> Deferred[None]:
        return self._look("open_up", folder).addErrback(lambda _: None)

    def _look(self, do: str, folder: Path, **args: Any) -> Deferred[Any]:
        """Have a process of the keeper do this with everything in `folder`, and return its answer."""
        read, write = os.pipe()
        try:
            self._ask(do, (write,), paths=list(map(str, folder.iterdir())), **args)
        except OSError:
            os.close(read)
            return fail()
        finally:
            os.close(write)
        return deferToThread(_read_answer, read)

    def _make_work(self) -> Path:
        folder = self._outbox / f"{_WORK}{uuid.uuid4().hex}"
        self._ask("make_folder", path=str(folder))
        return folder

    @contextmanager
    def folder_for_a_moment(self) -> Iterator[Path]:
        folder = self._make_work()
        try:
            yield folder
        finally:
            discard(folder)

    def _ask(self, do: str, fds: tuple[int, ...] = (), **args: Any) -> Any:
        return self.keeper.ask(self.uid, do, fds, **args)


class Accounts:
    """Finds the account of a project or folder. It is a component of Scrapyd's application."""

    def __init__(self, settings: NodeSettings, keeper: KeeperClient | None = None) -> None:
        self._settings = settings
        self._keeper = keeper
        self._own = Account()
        self._kept: dict[int, KeptAccount] = {}
        self._sweep = LoopingCall(self._clear)

    def of(self, project: str) -> Account:
        """The account of the project. Raises `OSError` if there are more projects than users."""
        return self._own if self._keeper is None else self._account(self._keeper, self._user(project))

    def owner(self, folder: Path) -> Account:
        """The account for which an attempt's folder was made. The folder has that user's group; up to protocol 2 the
        user owned it. Raises `OSError`.
        """
        found = folder.lstat()
        uid = next((one for one in (found.st_uid, found.st_gid) if one in self._settings.user_range), None)
        if self._keeper is None or uid is None:
            return self._own
        return self._account(self._keeper, uid)

    def start(self) -> None:
        """Let users of `NODE_UIDS` reach their own folders, and nothing else. Raises `OSError`."""
        if self._keeper is None:
            return
        close_to_others(self._settings)
        for folder in self._settings.outbox.glob(f"{_WORK}*"):
            discard(folder)
        self._keeper.ask(self._settings.user_range[0], "reaches", path=str(self._settings.outbox))
        reactor.addReader(self._keeper)
        self._sweep.start(_SWEEP)

    def _account(self, keeper: KeeperClient, uid: int) -> KeptAccount:
        return self._kept.setdefault(uid, KeptAccount(keeper, uid, self._settings.outbox))

    @state_change("node.give_user")
    def _user(self, project: str) -> int:
        """The user of a project. Nodes on one volume share this assignment: a user belongs to one project in all
        folders.
        """
        folder = self._settings.nodes_dir or self._settings.node_dir
        with os.fdopen(open_lock(folder / _LOCK), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = folder / _USERS
            users: dict[str, int] = json.loads(path.read_bytes()) if path.exists() else {}
            if project not in users:
                taken = set(users.values())
                free = next((uid for uid in self._settings.user_range if uid not in taken), None)
                if free is None:
                    raise OSError(28, f"NODE_UIDS: all {len(taken)} users are taken by projects")
                users[project] = free
                write_atomically(path, json.dumps(users, indent=2).encode())
            return users[project]

    def _clear(self) -> None:
        """Remove what the tailer could not remove because a project's user had closed folders to it."""
        for folder in self._settings.outbox.glob(f"{_REMOVED}*"):
            with suppress(OSError):
                self.owner(folder).open_up(folder).addCallback(_remove, folder)


def remove_temporary(folder: Path) -> None:
    """Remove the attempt's temporary files in the background. `open_up` was called before. Raises `OSError`."""
    temporary = folder / TEMPORARY
    with suppress(FileNotFoundError), os.scandir(temporary) as entries:
        if next(entries, None) is not None:
            deferToThread(remove_tree, temporary)


def discard(folder: Path) -> None:
    """Remove the folder in the background. What cannot be removed stays, under a name that the next sweep finds."""
    removed = folder.with_name(f"{_REMOVED}{folder.name}")
    folder.rename(removed)
    deferToThread(remove_tree, removed)


@state_change("node.give_folder")
def _give(theirs: Path, place: Path) -> None:
    theirs.rename(place)


def _remove(_opened: None, folder: Path) -> Deferred[bool]:
    return deferToThread(remove_tree, folder)


def _read_answer(pipe: int) -> Any:
    """Read the answer of a keeper's process. Raises `ValueError` if there is none."""
    with os.fdopen(pipe, "rb") as file:
        return json.loads(file.read())


def close_to_others(settings: NodeSettings) -> None:
    """Let users of projects pass through the node's folders without listing them or opening anything in them.
    Scrapyd's umask does this for new files; this function changes older ones. Raises `OSError`.
    """
    node = settings.node_dir
    for folder in filter(None, (settings.nodes_dir, settings.discoverybot_home, node)):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o751)
    settings.outbox.chmod(0o771)
    for path in (*node.glob("*"), *(node / "eggs").glob("*"), *settings.outbox.glob("*")):
        ours = path.lstat().st_uid == os.geteuid() and not path.is_symlink()
        if ours and path not in {settings.outbox, node / UNPACKED, node / VENVS}:
            path.chmod(path.stat().st_mode & 0o770)


def open_accounts(settings: NodeSettings) -> Accounts:
    """Accounts with the keeper that the environment names, or without one. Raises `OSError`."""
    fds = os.environ.pop(KEEPER, None)
    accounts = Accounts(settings, KeeperClient(*map(int, fds.split(","))) if fds else None)
    accounts.start()
    return accounts
