"""What the CLI's exit code says."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The outcome of a followed crawl, or of the command itself."""

    #: The crawl finished; the command did what it was asked.
    OK = 0
    #: The crawl ended in error, or the gateway could not be reached.
    ERROR = 1
    #: The command line is wrong, or the gateway refused the request.
    REFUSED = 2
    #: The crawl ended with errors on up to 30 % of its pages, or at its time limit.
    PARTIAL = 3
    CANCELLED = 4
    #: Ctrl-C while following: the crawl itself goes on.
    INTERRUPTED = 130


_OF_STATUS = {
    "finished": ExitCode.OK,
    "partial": ExitCode.PARTIAL,
    "cancelled": ExitCode.CANCELLED,
}


def of_status(status: str) -> ExitCode:
    """For a job that ended so."""
    return _OF_STATUS.get(status, ExitCode.ERROR)
