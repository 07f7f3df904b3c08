"""How far an attempt was shipped. An older checkpoint costs work, never correctness: what is shipped again is
named by its position and changes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from gateway.crash_points import state_change
from gateway.domain.log_line import HEADLESS_LEVEL
from gateway.domain.node_files import SHIPPED, read_file, write_atomically


class LogPosition(BaseModel):
    """A place between two entries. Frozen: each thread replaces its own, the one that saves sees old or new."""

    model_config = ConfigDict(frozen=True)

    offset: int = Field(default=0, ge=0)
    #: Level in force there, for lines that have none of their own.
    level: str = HEADLESS_LEVEL


class Checkpoint(BaseModel):
    """`shipped.json`. Each field has one writer."""

    #: Everything before it is in the stream, or was left to MongoDB.
    log_redis: LogPosition = LogPosition()
    #: Start of the chunk that still grows; everything before it is in MongoDB for good.
    log_mongo: LogPosition = LogPosition()
    #: Byte offset up to which `items.jsonl` is in MongoDB.
    items: int = Field(default=0, ge=0)
    #: Bytes that the log had when the exit report was first seen: nothing after them is part of it.
    log_end: int | None = Field(default=None, ge=0)
    #: Files that could not be read, however often it was tried, and what they were instead: shipped without them.
    lost: dict[str, str] = Field(default_factory=dict)
    #: MongoDB has acknowledged the log, the items and the exit.
    acknowledged: bool = False


def load_checkpoint(folder: Path) -> Checkpoint:
    """The saved one, or the beginning where there is none or it cannot be understood."""
    with suppress(OSError, ValueError):
        return Checkpoint.model_validate_json(read_file(folder / SHIPPED))
    return Checkpoint()


@state_change("tailer.save_checkpoint")
def save_checkpoint(folder: Path, data: bytes) -> None:
    """Raises `OSError`, on a full disk for one."""
    write_atomically(folder / SHIPPED, data)
