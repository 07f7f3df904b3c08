"""Plans what a run would change. The items of the run and the records are sorted by the hashes of their keys, and
compared in this order.

The plan depends only on the run's items, the records and the dataset's options. None of them changes while the plan
is made, so a plan that is made again after a crash is the same. It is stored in temporary files: nothing is written
to a store before the guard has decided on the plan.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from attrs import define, field

from gateway.datasets.content import Key, content_hash, differences, key_hash, key_of, shown_key
from gateway.datasets.dataset import (
    EXAMPLES,
    ChangeType,
    Dataset,
    DatasetRun,
    ItemChange,
    Record,
    RunCounts,
    change_id,
    record_id,
)
from gateway.datasets.item_schema import SchemaCheck
from gateway.datasets.read_ahead import read_ahead
from gateway.datasets.sightings import Sighting, Sightings
from gateway.datasets.store import RecordStore
from gateway.items.formats import Row, as_json
from gateway.items.items import Item, ItemStore, parse_row
from gateway.stores.mongo import Document

#: Records, or items, that are read at a time.
BATCH = 500
#: Changes that are made at a time. The number is smaller, because each change may have an item.
CHANGES = 100
#: Bytes of an item that is shown as an example.
_EXAMPLE = 500
_TYPES = tuple(ChangeType)
#: Type, key hash, position and content hash of one change.
_PACKED = struct.Struct(">B16sQ16s")
_NOTHING = "0" * 32
T = TypeVar("T")
Read = TypeVar("Read")
#: The position of an item that was set apart: only its key counts. The position of an item is the byte at which it
#: ends, so no other item has the position 0.
_APART = 0

#: Called regularly during long work. Raises an error if the work must end.
Beat = Callable[[], object]


class RunItems(NamedTuple):
    """The items of a run: those of the job's attempt that counts."""

    store: ItemStore
    job_id: str
    attempt: int

    def each(self, beat: Beat) -> Iterator[Item]:
        for page in read_ahead(self._pages()):
            beat()
            yield from page

    def _pages(self) -> Iterator[list[Item]]:
        after: str | None = None
        while found := self.store.page(self.job_id, self.attempt, after, BATCH):
            yield found
            after = found[-1].id

    def at(self, positions: list[int]) -> dict[int, Item] | None:
        """By position: the items at these positions, without positions that have none. `None` if the items are too
        large to be read together.
        """
        found = self.store.of([Item(self.job_id, self.attempt, position, None).id for position in positions])
        return None if found is None else {item.end: item for item in found}


class KnownRecord(NamedTuple):
    """The fields of a record with which a run is compared."""

    key_hash: str
    #: The hash of its content.
    hash: str
    removed: bool
    scopes: dict[str, int]


class Planned(NamedTuple):
    """One planned change."""

    type: ChangeType
    key_hash: str
    #: The position of the item; 0 for a change without an item.
    position: int
    content_hash: str

    def pack(self) -> bytes:
        content = bytes.fromhex(self.content_hash)
        return _PACKED.pack(_TYPES.index(self.type), bytes.fromhex(self.key_hash), self.position, content)

    @classmethod
    def unpack(cls, data: bytes) -> Planned:
        kind, key, position, content = _PACKED.unpack(data)
        return cls(_TYPES[kind], key.hex(), position, content.hex())


class Plan(NamedTuple):
    """The planned changes, in a file, and their counts."""

    path: Path
    size: int
    counts: RunCounts
    #: How many present records there were in the run's scope.
    known: int
    left_out: list[str]

    def __iter__(self) -> Iterator[Planned]:  # type: ignore[override]  # a plan is read as its changes
        with self.path.open("rb") as file:
            while data := file.read(_PACKED.size * BATCH):
                for start in range(0, len(data), _PACKED.size):
                    yield Planned.unpack(data[start : start + _PACKED.size])


@define(eq=False, repr=False, slots=False, kw_only=True)
class Planner:
    """Makes the plan of one run. `look` is called with each item that counts. Items that do not pass `check` are set
    apart. `folder` is for temporary files.
    """

    dataset: Dataset
    run: DatasetRun
    items: RunItems
    records: RecordStore
    folder: Path
    beat: Beat
    look: Callable[[Row], object] = lambda _row: None
    check: SchemaCheck | None = None
    counts: RunCounts = field(init=False, factory=RunCounts)
    _left_out: list[str] = field(init=False, factory=list)
    _known: int = field(init=False, default=0)

    def plan(self) -> Plan:
        """Raises PyMongo's errors, `OSError`, and what `beat` raises."""
        sightings = self._sight()
        path, size = self.folder / "plan", 0
        with path.open("wb") as file:
            for planned in self._compare(sightings):
                file.write(planned.pack())
                size += 1
        self.counts.repeated = sightings.repeated
        return Plan(path, size, self.counts, self._known, self._left_out)

    def _sight(self) -> Sightings:
        sightings, dataset = Sightings(self.folder), self.dataset
        for item in self.items.each(self.beat):
            row = item.row
            found = identify(row, dataset)
            if found is None:
                self._leave_out(row)
                continue
            if self.check is not None and not self.check.fits(row):
                self.counts.set_apart += 1
                # its key is a sighting, so that the record is not removed; any other item with this key replaces it
                sightings.add(key_hash(found.key), _APART, _NOTHING)
                continue
            self.look(row)
            sightings.add(key_hash(found.key), item.end, found.content)
        return sightings

    def _leave_out(self, row: Row) -> None:
        self.counts.without_key += 1
        if len(self._left_out) < EXAMPLES:
            self._left_out.append(as_json(row)[:_EXAMPLE].decode("utf-8", "ignore"))

    def _compare(self, sightings: Sightings) -> Iterator[Planned]:
        for sighting, known in _side_by_side(sightings.in_order(), self._records()):
            if sighting is not None and sighting.position != _APART:
                self.counts.items += 1
            if known is not None and not known.removed and self.run.scope in known.scopes:
                self._known += 1
            kind = self._kind(sighting, known)
            self._count(kind, sighting)
            if kind is not None:
                hashed = sighting.key_hash if sighting else known.key_hash  # type: ignore[union-attr]  # one is there
                position, content = (sighting.position, sighting.content_hash) if sighting else (0, _NOTHING)
                yield Planned(kind, hashed, position, content)

    def _kind(self, sighting: Sighting | None, known: KnownRecord | None) -> ChangeType | None:
        """How the run changes this record; `None` if it does not."""
        if sighting is not None:
            is_apart = sighting.position == _APART
            if known is None or known.removed:
                return None if is_apart else ChangeType.NEW
            if known.hash != sighting.content_hash and not is_apart:
                return ChangeType.CHANGED
            return None if known.scopes.get(self.run.scope) == 0 else ChangeType.SEEN
        if known is None or not self._is_missed(known):
            return None
        if scopes_without(known.scopes, self.run.scope, self.dataset.confirm_removed):
            return ChangeType.MISSED
        return ChangeType.REMOVED

    def _is_missed(self, known: KnownRecord) -> bool:
        """Whether the run, which has not found the item, should have found it."""
        if known.removed or self.run.incomplete or self.run.scope not in known.scopes:
            return False
        return not (self.run.excused and self._is_of_failed_page(known))

    def _is_of_failed_page(self, known: KnownRecord) -> bool:
        """Whether the item names a page that failed in this run; also if the record is too large to be read."""
        records = self.records.of(self.dataset.id, [known.key_hash])
        if records is None:
            return True
        rows = map(row_of, records.values())
        return any(value in self.run.excused for row in rows for value in row.values() if isinstance(value, str))

    def _count(self, kind: ChangeType | None, sighting: Sighting | None) -> None:
        counts = self.counts
        match kind:
            case ChangeType.NEW:
                counts.new += 1
            case ChangeType.CHANGED:
                counts.changed += 1
            case ChangeType.REMOVED:
                counts.removed += 1
            case ChangeType.MISSED:
                counts.missed += 1
            case _:
                counts.same += sighting is not None and sighting.position != _APART

    def _records(self) -> Iterator[KnownRecord]:
        for found in read_ahead(self._record_pages()):
            self.beat()
            hashes = self._rehash(found)
            for document in found:
                hashed = _key_hash(document)
                yield KnownRecord(
                    hashed,
                    hashes.get(document["_id"]) or document["hash"],
                    document.get("removed", False),
                    document.get("scopes", {}),
                )

    def _record_pages(self) -> Iterator[list[Document]]:
        after = ""
        while found := self.records.compared(self.dataset.id, after, BATCH):
            yield found
            after = _key_hash(found[-1])

    def _rehash(self, found: list[Document]) -> dict[str, str]:
        """Hash again the records that were hashed in another way, and return their new hashes by record id. The
        records do not count as changed.
        """
        hashing = self.dataset.hashing
        old = {one["_id"]: one["applied"] for one in found if one["hashed_by"] != hashing}
        if not old:
            return {}
        hashes = [one.rpartition(":")[2] for one in old]
        made: dict[str, str] = {}
        for _, records in _in_parts(hashes, lambda some: self.records.of(self.dataset.id, some)):
            made |= {one.id: content_hash(row_of(one), self.dataset.ignore) for one in records.values()}
        self.records.rehash({one: (old[one], hashed, hashing) for one, hashed in made.items()})
        return made


class Identified(NamedTuple):
    key: Key
    content: str


def identify(row: Row, dataset: Dataset) -> Identified | None:
    """The key of an item and the hash of its content; `None` if a field of the key is empty, or if the item is nested
    too deeply.
    """
    try:
        content = content_hash(row, dataset.ignore)
        key = key_of(row, dataset.key, content)
    except (RecursionError, TypeError, ValueError):
        return None
    return None if key is None else Identified(key, content)


def scopes_without(scopes: dict[str, int], scope: str, confirm: int) -> dict[str, int]:
    """The scopes of a record after a complete run of `scope` has missed it; empty if no scope has it any more."""
    missed = scopes[scope] + 1
    others = {one: count for one, count in scopes.items() if one != scope}
    return others if missed >= confirm else {**others, scope: missed}


def _side_by_side(
    sightings: Iterator[Sighting], records: Iterator[KnownRecord]
) -> Iterator[tuple[Sighting | None, KnownRecord | None]]:
    """Merge both by key hash: each key once, with its sighting, its record, or both."""
    sighting, known = next(sightings, None), next(records, None)
    while sighting is not None or known is not None:
        if known is None or (sighting is not None and sighting.key_hash < known.key_hash):
            yield sighting, None
            sighting = next(sightings, None)
        elif sighting is None or known.key_hash < sighting.key_hash:
            yield None, known
            known = next(records, None)
        else:
            yield sighting, known
            sighting, known = next(sightings, None), next(records, None)


def _key_hash(document: Document) -> str:
    return str(document["_id"]).rpartition(":")[2]


def row_of(record: Record | ItemChange) -> Row:
    return record.item if record.item is not None else parse_row(record.raw or "{}")


# --- from the plan to the changes


def changes_of(plan: Plan, planner: Planner, plan_name: str) -> Iterator[list[ItemChange]]:
    """All changes of the plan in the order of their numbers, in batches of `CHANGES`, or fewer if they are large."""
    planned, seq = iter(plan), planner.dataset.head_seq
    while some := list(islice(planned, CHANGES)):
        for part, (records, items) in _in_parts(some, lambda part: _known_of(part, planner)):
            made = []
            for one in part:
                seq += 1
                numbered = {"id": change_id(planner.dataset.id, seq, plan_name), "seq": seq, "plan": plan_name}
                record, item = records.get(one.key_hash), items.get(one.position)
                made.append(ItemChange(**numbered, **_content(one, planner, record, item)))
            yield made


def _known_of(some: list[Planned], planner: Planner) -> tuple[dict[str, Record], dict[int, Item]] | None:
    """The records and items that these changes need; `None` if they are too large to be read together."""
    planner.beat()
    records = planner.records.of(planner.dataset.id, [one.key_hash for one in some])
    items = planner.items.at([one.position for one in some if one.position]) if records is not None else None
    return None if records is None or items is None else (records, items)


def _in_parts(some: list[T], read: Callable[[list[T]], Read | None]) -> Iterator[tuple[list[T], Read]]:
    """Call `read` for all of them. If it returns `None`, because they are too large together, halve the list."""
    if (found := read(some)) is not None:
        yield some, found
    else:
        middle = len(some) // 2
        yield from _in_parts(some[:middle], read)
        yield from _in_parts(some[middle:], read)


def _content(planned: Planned, planner: Planner, record: Record | None, item: Item | None) -> dict[str, Any]:
    """The fields of the change, except its number."""
    dataset, run = planner.dataset, planner.run
    facts: dict[str, Any] = {
        "dataset": dataset.id,
        "run": run.job_id,
        "type": planned.type,
        "key_hash": planned.key_hash,
        "at": run.ended_at,
        "first_seen": record.first_seen if record else run.started_at,
    }
    scopes = record.scopes if record and not record.removed else {}
    if planned.type is ChangeType.SEEN:
        return facts | {"scopes": {**scopes, run.scope: 0}}
    if planned.type is ChangeType.MISSED:
        return facts | {"scopes": scopes_without(scopes, run.scope, dataset.confirm_removed)}
    if planned.type is ChangeType.REMOVED:
        known = record or _lost(dataset, planned)
        return facts | known.model_dump(include={"key", "item", "raw", "hash", "hashed_by"})
    found = item or _missing(planned)
    identified = identify(found.row, dataset)
    facts |= {"key": shown_key(identified.key) if identified else {}, "item": found.data, "raw": found.raw}
    facts |= {"hash": planned.content_hash, "hashed_by": dataset.hashing, "scopes": {**scopes, run.scope: 0}}
    if planned.type is ChangeType.CHANGED and record is not None and record.raw is None and found.raw is None:
        facts["differences"] = differences(row_of(record), found.row, dataset.ignore)
    return facts


def _missing(planned: Planned) -> Item:
    raise LookupError(f"the item at {planned.position} is gone while its run is folded")


def _lost(dataset: Dataset, planned: Planned) -> Record:
    raise LookupError(f"the record {record_id(dataset.id, planned.key_hash)} is gone while a run is folded")
