"""Files that crawls have written. The file store (`FILES_URL`) has their bytes, and MongoDB has a record of each
file.

A job, an attempt and a name identify a file, so storing it twice changes nothing. The bytes are stored before the
record, so every file that is listed can be fetched.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import takewhile
from mimetypes import MimeTypes
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, S3Store
from pydantic import BaseModel, Field
from pymongo import ASCENDING
from pymongo.database import Database

from gateway.contract.outbox import AttemptId, remove_tree
from gateway.crash_points import state_change
from gateway.errors import FileNotStoredError, FileStoreAwayError
from gateway.stores.documents import Documents, reader
from gateway.stores.mongo import Document, Repeating, mongo_errors, of_job, of_jobs

#: The time that one request to S3 may take, and the time for which it is retried.
_REQUEST = timedelta(seconds=30)
_REPEATED = timedelta(seconds=10)
#: The bytes of one part of an upload, and how many parts are sent at the same time.
PART = 5 << 20
_PARTS_AT_ONCE = 2
#: Plain names: they have no special characters for a file system, a shell or a URL. Only a file with a plain name is
#: stored under its own name.
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_LONGEST_PLAIN = 200
#: Python's own list of media types, because the system's list differs from machine to machine.
_TYPES = MimeTypes()
_ANY_TYPE = "application/octet-stream"


class FileRecord(BaseModel, frozen=True):
    """A file that is in the store."""

    #: `<job>:<name>//<attempt>`: files with the same name are adjacent, the latest attempt last.
    id: Annotated[str, Field(alias="_id")]
    job_id: str
    attempt: int
    #: Its path below the folder that the crawl works in.
    name: str
    size: int
    type: str
    sha256: str
    #: When the crawl wrote it last.
    modified_at: datetime
    stored_at: datetime

    @classmethod
    def of(cls, attempt: AttemptId, name: str, **facts: Any) -> FileRecord:
        job_id, number = attempt
        known = {"job_id": job_id, "attempt": number, "name": name, "type": type_of(name)}
        return cls(_id=_id(job_id, name, number), **known, **facts)

    @property
    def place(self) -> str:
        return place_of(AttemptId(self.job_id, self.attempt), self.name)


def type_of(name: str) -> str:
    """The media type, guessed from the name."""
    kind, packed = _TYPES.guess_type(name.rpartition("/")[2])
    return kind if kind and not packed else _ANY_TYPE


def place_of(attempt: AttemptId, name: str) -> str:
    """The path of a file in the store. A plain name is used as it is, so that other tools find the file. Any other
    name is replaced by its hash.
    """
    is_plain = len(name) <= _LONGEST_PLAIN and _PLAIN.fullmatch(name)
    place = name if is_plain else f"~{hashlib.sha256(name.encode()).hexdigest()}"
    return f"{attempt.job_id}/{attempt.attempt}/{place}"


def _id(job_id: str, name: str, attempt: int) -> str:
    # unique, because no name has two slashes in a row
    return f"{job_id}:{name}//{attempt:06d}"


# --- the file store: a folder, or a bucket of S3 or of another store that speaks its protocol


class FilesPlace(NamedTuple):
    """The place where files are stored. Options of S3 that are not given come from the usual `AWS_…` variables and
    files.
    """

    url: str
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None


class FileBytes:
    """The bytes of files. Each method raises `FileStoreAwayError` if the store does not answer, or refuses."""

    def __init__(self, place: FilesPlace) -> None:
        self._place = place
        self._opened: LocalStore | S3Store | None = None

    @state_change("files.put")
    def put(self, place: str, pieces: Iterable[bytes]) -> None:
        """Store a file, or replace it. It becomes visible only when it is complete. Pieces may have any size. Errors
        of `pieces` are raised.
        """
        with self._errors() as store:
            # less than one part needs no multipart upload, and S3 refuses one without any bytes
            iterator = iter(pieces)
            first = _up_to_a_part(iterator)
            if len(first) < PART:
                obstore.put(store, place, first)
            else:
                obstore.put(store, place, _then(first, iterator), chunk_size=PART, max_concurrency=_PARTS_AT_ONCE)

    def read(self, place: str, start: int, length: int) -> bytes:
        """A part of a file. Raises `FileNotStoredError` if there is no file at this place."""
        if not length:
            return b""
        with self._errors(place) as store:
            return bytes(obstore.get_range(store, place, start=start, length=length))

    def whole(self, place: str) -> bytes:
        """All of a small file. Raises `FileNotStoredError`."""
        with self._errors(place) as store:
            return bytes(obstore.get(store, place).bytes())

    @state_change("files.move")
    def move(self, place: str, to: str) -> None:
        """Move a file to another place, and replace a file there. Raises `FileNotStoredError`."""
        with self._errors(place) as store:
            obstore.rename(store, place, to, overwrite=True)

    def shares_disk(self, folder: Path) -> bool:
        """Whether the store is a folder on the same file system as `folder`. Raises `OSError`."""
        parts = urlsplit(self._place.url)
        return parts.scheme != "s3" and Path(parts.path).stat().st_dev == folder.stat().st_dev

    @state_change("files.remove")
    def remove(self, prefix: str) -> None:
        """Remove all files whose paths begin with the prefix, and the folders that become empty."""
        with self._errors() as store:
            while found := next(iter(obstore.list(store, prefix=prefix)), None):
                with suppress(FileNotFoundError):  # another process removes it as well
                    obstore.delete(store, [one["path"] for one in found])
            if isinstance(store, LocalStore):
                # incomplete files of processes that were killed are not listed
                root = Path(urlsplit(self._place.url).path)
                remove_tree(root / prefix)
                with suppress(OSError):  # a folder that is not empty stays, and those above it
                    for folder in takewhile(root.__ne__, (root / prefix).parents):
                        folder.rmdir()

    @contextmanager
    def _errors(self, place: str | None = None) -> Iterator[LocalStore | S3Store]:
        try:
            if self._opened is None:
                self._opened = _open(self._place)
            yield self._opened
        except FileNotFoundError as error:
            if place is None:
                raise FileStoreAwayError(self._place.url, error) from error
            raise FileNotStoredError(place) from error
        except (BaseError, OSError) as error:
            raise FileStoreAwayError(self._place.url, error) from error


def _up_to_a_part(pieces: Iterator[bytes]) -> bytes:
    """The first pieces together: at least one part of an upload, or everything if there is less."""
    found = next(pieces, b"")
    while len(found) < PART and (piece := next(pieces, None)) is not None:
        found += piece
    return found


def _then(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _open(place: FilesPlace) -> LocalStore | S3Store:
    parts = urlsplit(place.url)
    if parts.scheme != "s3":
        # not readable by other users of the machine
        Path(parts.path).mkdir(mode=0o750, parents=True, exist_ok=True)
        return LocalStore(parts.path, automatic_cleanup=True)
    given = {
        "endpoint": place.endpoint,
        "region": place.region,
        "access_key_id": place.access_key,
        "secret_access_key": place.secret_key,
    }
    return S3Store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        config={name: value for name, value in given.items() if value},  # type: ignore[arg-type]  # names from above
        client_options={"timeout": _REQUEST, "connect_timeout": "5s", "allow_http": True},
        retry_config={"max_retries": 2, "retry_timeout": _REPEATED},
    )


# --- the records of files, and records and bytes together


class FileStore:
    """The files of jobs. Methods raise PyMongo's errors, and `FileStoreAwayError` if they read or write bytes."""

    def __init__(self, database: Database[Document], data: FileBytes) -> None:
        self._files = database["files"]
        self._documents = Documents(self._files, reader(FileRecord))
        self._data = data

    def keep(self, attempt: AttemptId, name: str, pieces: Iterable[bytes]) -> None:
        """Store the bytes. Afterwards, `note` must store the record."""
        self._data.put(place_of(attempt, name), pieces)

    def shares_disk(self, folder: Path) -> bool:
        """See `FileBytes.shares_disk`."""
        return self._data.shares_disk(folder)

    @state_change("files.note")
    def note(self, record: FileRecord) -> None:
        self._files.replace_one({"_id": record.id}, record.model_dump(by_alias=True), upsert=True)

    def page(
        self, job_id: str, attempt: int | None, after: str | None, limit: int
    ) -> tuple[list[FileRecord], str | None]:
        """Up to `limit` files after the name `after`, in the order of their names, and the `after` of the next page
        (`None` at the end). If `attempt` is `None`: the files of all attempts, and the latest of each name.
        """
        found: list[FileRecord] = []
        since = f"{job_id}:" if after is None else f"{job_id}:{after}//:"
        of_attempt = {} if attempt is None else {"attempt": attempt}
        while True:
            query = {"_id": {"$gt": since, "$lt": f"{job_id};"}, **of_attempt}
            batch = self._documents.find(query, limit + 1, [("_id", ASCENDING)])
            for record in batch:
                if found and found[-1].name == record.name:
                    found.pop()
                found.append(record)
            if len(found) > limit:
                return found[:limit], found[limit - 1].name
            if len(batch) <= limit:
                return found, None
            since = batch[-1].id

    def find(self, job_id: str, attempt: int | None, name: str) -> FileRecord | None:
        """The file of this name; the latest if `attempt` is `None`."""
        last = "//:" if attempt is None else f"//{attempt:06d}"
        first = "//" if attempt is None else last
        query = {"_id": {"$gte": f"{job_id}:{name}{first}", "$lte": f"{job_id}:{name}{last}"}}
        found = self._documents.collection.find_one(query, sort=[("_id", -1)])
        return self._documents.optional(found)

    def read(self, record: FileRecord, start: int, length: int) -> bytes:
        """Raises `FileNotStoredError`."""
        return self._data.read(record.place, start, length)

    def of_any(self, job_ids: Iterable[str]) -> list[str]:
        """The ids of the jobs that have files. It needs one query for each of these; few jobs have files."""
        rest, found = set(job_ids), list[str]()
        while rest and (record := self._files.find_one(of_jobs(sorted(rest)), {"_id": 1})):
            found.append(record["_id"].partition(":")[0])
            rest.remove(found[-1])
        return found

    def delete(self, job_id: str) -> None:
        """Delete all files of a job. The bytes are deleted first, so that no bytes are left without a record."""
        query = of_job(job_id)
        # most jobs have no files, so their deletion must not depend on the file store
        with mongo_errors():
            if self._files.find_one(query, {"_id": 1}) is None:
                return
            self._data.remove(f"{job_id}/")
            self._forget(query)

    @state_change("files.forget")
    def _forget(self, query: Document) -> None:
        Repeating(self._files).delete_many(query)
