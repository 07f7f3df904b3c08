"""The frontier file of an attempt: what is still to be fetched, written so that a killed crawl can go on.

The file is a sequence of frames. Each is written by one `write()`:

    u32 length of the body | u32 CRC-32 of the body | body: a JSON object, a newline, blobs

The body is sealed where the crawl has variables (`crawler/frontier/sealing.py`).
The keys of the JSON object:

========  ==================================================================================================
`new`     `[id, parent, fingerprint, is filtered, length of its blob]` of each request that is new; the blob
          is the request, pickled. The parent is the request whose output it was: `START` for `start()`,
          `OTHER` for extensions, timers and `spider_idle`
`marks`   the mark of each of `new`, in their order: what tells requests with one fingerprint apart
`done`    id of a request whose output is consumed, and whose items are through the pipelines
`gave`    `{id: number}`: this frame's items are of a request that is not done, which has given this number of
          items so far. If it is never done, they do not count: it runs again and gives them again
`end`     length of `items.jsonl` with the items of this frame
`requests` likewise of `requests.jsonl`
`state`   length of the blob with the changes of the spider's own state
`jar`     length of the blob with the cookies of all jars
`jars`    length of the blob with those of the jars that have changed since, which release 0.2.0 does not read
`facts`   counters, and whether `start()` is at its end (`started`) and its items are through the pipelines
          (`start_done`); those of the last frame count
`samples` the first errors and refusals, where they have changed
========  ==================================================================================================

A frame is written before its lines of `requests.jsonl` and its items. If the `end` or `requests` of the last frame is
beyond the end of that file, the frame does not count: its request runs again. The first frame of a file is a snapshot
of all that was before: it also has `seen`, `children`, `child_marks` and `next`. The `gave` of a snapshot is for
release 0.2.0: it says how many items of a request that is not done are in the first part of `items.jsonl`, but not
where. Later releases write it for a `start()` that is done, so that 0.2.0 can read it, and for what 0.2.0 has left.

Blobs are pickles. Only processes of the project that wrote them load them.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise, repeat, starmap, zip_longest
from pathlib import Path
from typing import IO, Any, NamedTuple

from crawler import extras
from crawler.frontier.sealing import OPEN, FrontierSeal
from gateway.contract.outbox import (
    FRONTIER,
    ITEMS,
    REQUESTS,
    AttemptId,
    attempt_dir,
    file_size,
    is_locked,
    is_there,
    open_file,
    state_dir,
    write_all,
    write_atomically,
)
from gateway.crash_points import state_change

#: Parents that are no requests.
START, OTHER = 0, -1

_HEAD = struct.Struct("<II")
#: Maximum number of bytes of a frame that is read. A frame holds the requests that one page led to.
_LONGEST_FRAME = 1 << 30
#: Bytes copied at a time.
_PIECE = 1 << 20


class KeptRequest(NamedTuple):
    """A request in the form in which the file has it."""

    id: int
    parent: int
    #: In hexadecimal.
    fingerprint: str
    #: Whether the duplicate filter knows it.
    is_filtered: bool
    data: bytes
    #: Tells the request from others with its fingerprint; empty if release 0.2.0 or earlier has written it.
    mark: str = ""


class RequestMark(NamedTuple):
    """Identifies a request that is given again."""

    fingerprint: str
    mark: str


class FrontierState:
    """What the frames of one attempt add up to."""

    def __init__(self) -> None:
        #: Requests that are not done, by id, in the order in which they were found.
        self.pending: dict[int, KeptRequest] = {}
        self.seen: set[str] = set()
        #: Requests that a request which is not done has given so far. When it runs again, it gives the same again.
        self.children: defaultdict[int, list[RequestMark]] = defaultdict(list)
        #: Parts of `items.jsonl`, from byte to byte, with items of requests that are not done.
        self.early: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        #: Number of such items whose place in the first part of `items.jsonl` is unknown (see `gave`).
        self.given: dict[int, int] = {}
        #: Number of items of `start()`. After `start()` is done, release 0.2.0 skips this number when it runs again.
        self.start_given = 0
        #: Changes of the spider's own state, one pickle behind the other.
        self.changes = bytearray()
        self.jar = b""
        #: The jars that have changed since, one pickle behind the other.
        self.jar_changes = b""
        #: Length of the part of `items.jsonl` that counts.
        self.end = 0
        #: Likewise of `requests.jsonl`.
        self.requests_end = 0
        self.next_id = START + 1
        self.facts: dict[str, Any] = {}
        self.samples: dict[str, Any] = {}

    def apply(self, head: dict[str, Any], blobs: bytes) -> None:
        """Add one frame."""
        at = self._add_requests(head, blobs)
        changes, jar = head.get("state", 0), head.get("jar", 0)
        self.changes += blobs[at : at + changes]
        at += changes
        if jar:
            self.jar, self.jar_changes = blobs[at : at + jar], b""
        self.jar_changes += blobs[at + jar : at + jar + head.get("jars", 0)]
        begin, self.end, self.requests_end = self.end, head["end"], head.get("requests", 0)
        self.facts, self.samples = head["facts"], head.get("samples", self.samples)
        gave = {int(number): count for number, count in head.get("gave", {}).items()}
        self.start_given = gave.get(START, self.start_given)
        if "next" in head:
            self.given = gave
            self._begin(head)
        else:
            for number in gave:
                self.early[number].append((begin, self.end))
        self._forget_done(head.get("done"))

    def _add_requests(self, head: dict[str, Any], blobs: bytes) -> int:
        """Add the requests of a frame. Returns where their blobs end."""
        at = 0
        marks = head.get("marks") or repeat("")
        for (number, parent, fingerprint, is_filtered, size), mark in zip(head["new"], marks, strict=False):
            self._add(KeptRequest(number, parent, fingerprint, is_filtered, blobs[at : at + size], mark))
            at += size
        return at

    def _begin(self, head: dict[str, Any]) -> None:
        """Take over what only a snapshot has."""
        self.next_id = head["next"]
        self.seen.update(head["seen"])
        marks = head.get("child_marks", {})
        self.children = defaultdict(list)
        for number, prints in head["children"].items():
            pairs = zip_longest(prints, marks.get(number, ()), fillvalue="")
            self.children[int(number)] = list(starmap(RequestMark, pairs))

    def _forget_done(self, done: int | None) -> None:
        """Forget what is only needed for requests that run again, for the request `done` and for `start()`."""
        if done is not None:
            self.pending.pop(done, None)
            for known in (self.children, self.early, self.given):
                known.pop(done, None)
        if self.facts.get("started"):
            self.children.pop(START, None)
        if self.facts.get("start_done"):
            self.early.pop(START, None)
            self.given.pop(START, None)

    def snapshot(self, seal: FrontierSeal = OPEN) -> bytes:
        """One frame with the content of all frames so far."""
        requests = list(self.pending.values())
        of_start = {START: self.start_given} if self.facts.get("start_done") else {}
        head = {
            "new": list(map(describe, requests)),
            "marks": [request.mark for request in requests],
            "seen": list(self.seen),
            "children": {
                str(number): [child.fingerprint for child in kept] for number, kept in self.children.items()
            },
            "child_marks": {str(number): [child.mark for child in kept] for number, kept in self.children.items()},
            "gave": {str(number): count for number, count in (self.given | of_start).items()},
            "next": self.next_id,
            "state": len(self.changes),
            "jar": len(self.jar),
            "jars": len(self.jar_changes),
            "end": self.end,
            "requests": self.requests_end,
            "facts": self.facts,
            "samples": self.samples,
        }
        return frame(
            head, [*(request.data for request in requests), bytes(self.changes), self.jar, self.jar_changes], seal
        )

    def _add(self, request: KeptRequest) -> None:
        self.pending[request.id] = request
        self.next_id = max(self.next_id, request.id + 1)
        if request.parent != OTHER:
            self.children[request.parent].append(RequestMark(request.fingerprint, request.mark))
        if request.is_filtered:
            self.seen.add(request.fingerprint)


def describe(request: KeptRequest) -> list[Any]:
    return [request.id, request.parent, request.fingerprint, request.is_filtered, len(request.data)]


def frame(head: dict[str, Any], blobs: Iterable[bytes], seal: FrontierSeal = OPEN) -> bytes:
    body = seal.close(b"\n".join((extras.dumps(head), b"".join(blobs))))
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def frames(file: IO[bytes], seal: FrontierSeal = OPEN) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Head and blobs of each whole frame, up to the first broken one. Raises `ValueError` for what is not a frame."""
    while len(start := file.read(_HEAD.size)) == _HEAD.size:
        size, checksum = _HEAD.unpack(start)
        if size > _LONGEST_FRAME or len(body := file.read(size)) < size or zlib.crc32(body) != checksum:
            return
        head, _, blobs = seal.open(body).partition(b"\n")
        yield extras.loads(head), blobs


# --- from one attempt to the next


#: Variable with the folder of the attempt that a crawl continues, if there is one. Scrapyd sets it, because projects
#: with users of their own cannot see whether an attempt's mark is locked.
CONTINUES = "DISCOVERYBOT_CONTINUES"


def attempt_to_continue(folder: Path) -> Path | None:
    """The folder of the latest earlier attempt of the same job that left a frontier here and has no process left."""
    told = os.environ.get(CONTINUES)
    return find_attempt_to_continue(folder) if told is None else Path(told) if told else None


def find_attempt_to_continue(folder: Path, since: int = 1) -> Path | None:
    """As `attempt_to_continue`, found by looking into the folders of the attempts from the number `since` on."""
    attempt = AttemptId.parse(folder.name)
    if attempt is None:
        return None
    for number in range(attempt.attempt - 1, max(since, 1) - 1, -1):
        earlier = attempt_dir(folder.parent, AttemptId(attempt.job_id, number))
        if is_there(state_dir(earlier) / FRONTIER):
            return None if is_locked(earlier) else earlier
    return None


def read_frontier(folder: Path, seal: FrontierSeal = OPEN) -> FrontierState:
    """The state that an attempt has left. Raises `OSError`, and `ValueError` if the file is no frontier file."""
    state, items, requests = FrontierState(), file_size(folder / ITEMS), file_size(folder / REQUESTS)
    with os.fdopen(open_file(state_dir(folder) / FRONTIER), "rb") as file:
        try:
            for head, blobs in frames(file, seal):
                if head["end"] > items or head.get("requests", 0) > requests:
                    # the process died between the frame and what follows it
                    break
                state.apply(head, blobs)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{FRONTIER} cannot be read: {error!r}") from error
    return state


def take_over_items(source: Path, target: Path, state: FrontierState) -> int:
    """Copy the items of `source` that count to `target`, and adapt `state`. Items of requests that are not done are
    left out, because these requests run again and give them again. Returns how many were left out. Raises `OSError`.
    """
    early = sorted(part for parts in state.early.values() for part in parts)
    edges = [0, *(edge for part in early for edge in part), state.end]
    copied = copy_lines(source, target, list(pairwise(edges))[::2])
    state.early.clear()
    state.end = file_size(target)
    left_out = 0
    if report := state.facts.get("report"):
        left_out, report["items"] = report["items"] - copied, copied
    return left_out


@state_change("spider.copy_lines")
def copy_lines(source: Path, target: Path, parts: Iterable[tuple[int, int]]) -> int:
    """Make `target` those parts of `source`, each from byte to byte. Returns how many lines. Raises `OSError`."""
    lines = 0
    with os.fdopen(open_file(source), "rb") as read, os.fdopen(_replaced(target), "wb") as written:
        for begin, end in parts:
            size = end - begin
            read.seek(begin)
            while size > 0 and (piece := read.read(min(size, _PIECE))):
                written.write(piece)
                lines += piece.count(b"\n")
                size -= len(piece)
    return lines


def empty(path: Path) -> None:
    """Empty the file, if it exists, to undo a copy."""
    with suppress(OSError):
        os.close(open_file(path, os.O_WRONLY | os.O_TRUNC))


def _replaced(path: Path) -> int:
    return open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


@state_change("spider.frontier_handed_on")
def hand_on(folder: Path) -> None:
    """Remove the frontier of an attempt once its successor has one of its own. So a job has one frontier at a time,
    and none once its crawl is complete: a retry then begins anew.
    """
    with suppress(OSError):
        (state_dir(folder) / FRONTIER).unlink()


class FrontierFile:
    """The frontier file of the running attempt, its only writer. Methods raise `OSError` for errors of the disk."""

    def __init__(self, path: Path, state: FrontierState, seal: FrontierSeal = OPEN) -> None:
        self._path = path
        self._seal = seal
        self._fd = self._create(state.snapshot(seal))

    @state_change("spider.frontier_snapshot")
    def _create(self, snapshot: bytes) -> int:
        write_atomically(self._path, snapshot)
        return open_file(self._path, os.O_WRONLY | os.O_APPEND)

    @state_change("spider.frontier_frame")
    def append(self, head: dict[str, Any], blobs: Iterable[bytes]) -> None:
        write_all(self._fd, frame(head, blobs, self._seal))

    def close(self) -> None:
        os.close(self._fd)

    @state_change("spider.frontier_removed")
    def remove(self) -> None:
        """Remove the file, because the crawl has come to its end or cannot be continued."""
        self.close()
        with suppress(FileNotFoundError):
            self._path.unlink()
