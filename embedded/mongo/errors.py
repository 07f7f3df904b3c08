"""The errors of the server, with the codes and names of MongoDB's own `error_codes.yml`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any


class Code(IntEnum):
    """Error codes. The names are exactly MongoDB's `codeName`s, because drivers and our stores
    check codes and names.
    """

    InternalError = 1
    BadValue = 2
    UnknownError = 8
    FailedToParse = 9
    Unauthorized = 13
    TypeMismatch = 14
    InvalidLength = 16
    AuthenticationFailed = 18
    IllegalOperation = 20
    NamespaceNotFound = 26
    IndexNotFound = 27
    PathNotViable = 28
    ConflictingUpdateOperators = 40
    CursorNotFound = 43
    MaxTimeMSExpired = 50
    DollarPrefixedFieldName = 52
    InvalidIdField = 53
    NotSingleValueField = 54
    EmptyFieldName = 56
    CommandNotFound = 59
    ImmutableField = 66
    CannotCreateIndex = 67
    InvalidOptions = 72
    InvalidNamespace = 73
    IndexOptionsConflict = 85
    IndexKeySpecsConflict = 86
    CannotBackfillArray = 158
    CannotIndexParallelArrays = 171
    QueryPlanKilled = 175
    NotImplemented = 238
    QueryExceededMemoryLimitNoDiskUseAllowed = 292
    BSONObjectTooLarge = 10334
    DuplicateKey = 11000
    OutOfDiskSpace = 14031
    Location15958 = 15958  # $limit must be positive
    Location15975 = 15975  # $sort key ordering must be 1 or -1
    Location16410 = 16410  # field path starts with $
    Location31249 = 31249  # path collision in a projection
    Location31253 = 31253  # inclusion in an exclusion projection
    Location31254 = 31254  # exclusion in an inclusion projection
    Location40323 = 40323  # a stage must have exactly one field
    Location40324 = 40324  # unrecognized pipeline stage
    IDLFailedToParse = 40414
    Location51075 = 51075  # $regex options without $regex
    Location51091 = 51091  # invalid regular expression
    Location51108 = 51108  # invalid flag in regex options


class MongoError(Exception):
    """The error with which a command, or one of its statements, is answered."""

    def __init__(self, code: Code, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.details: Mapping[str, Any] = details

    def as_reply(self) -> dict[str, Any]:
        """The reply of a failed command."""
        return {"ok": 0.0, "errmsg": str(self), "code": int(self.code), "codeName": self.code.name, **self.details}

    def as_write_error(self, index: int) -> dict[str, Any]:
        """The entry for the failed statement `index` in the reply of a write command, which itself is `ok`."""
        return {"index": index, "code": int(self.code), "errmsg": str(self), **self.details}


def not_implemented(what: str) -> MongoError:
    """The error for something that MongoDB has and this server does not."""
    return MongoError(Code.NotImplemented, f"{what} is not supported by the embedded server; use MongoDB")
