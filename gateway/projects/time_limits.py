"""How long an attempt may take: as its request says, otherwise as its project says, up to the operator's limit."""

from __future__ import annotations

from attrs import define

from gateway.contract.crawl import CrawlSpec
from gateway.errors import InvalidRequestError
from gateway.projects.catalog import SpiderCatalog
from gateway.projects.environment import ProjectEnvironment

_SETTING = "CLOSESPIDER_TIMEOUT"
#: Additional seconds for a crawl that ends itself at a time limit, so that it can end before it is stopped.
_TO_END = 60


def check_timeout(asked: int, ceiling: int) -> None:
    """Raises `InvalidRequestError` if the time limit is above the ceiling."""
    if asked > ceiling:
        raise InvalidRequestError("timeout", f"at most {ceiling} s are allowed here (JOB_MAX_TIMEOUT)")


@define(eq=False, repr=False, slots=False)
class TimeLimits:
    """The time limits of crawls, in seconds."""

    _catalog: SpiderCatalog
    _environment: ProjectEnvironment
    _job_timeout: int
    _job_max_timeout: int

    def of(self, spec: CrawlSpec) -> int:
        """The time limit for a crawl of a deployed spider whose request names none: the default, or more if the crawl
        ends itself later than that.

        Raises `UnavailableError`, `StartingError`.
        """
        try:
            info = self._catalog.require(self._catalog.pin(spec))
        except InvalidRequestError:  # the submission reports what is wrong with it
            return self._job_timeout
        ends = [spec.settings.get(_SETTING), self._environment.get(info.project).settings.get(_SETTING), info.timeout]
        end = next((seconds for one in ends if (seconds := _seconds(one))), 0)
        return max(self._job_timeout, min(end + _TO_END, self._job_max_timeout) if end else 0)


def _seconds(value: object) -> int:
    """The value as whole seconds; 0 if it is not a number."""
    try:
        return int(float(str(value)))
    except (ValueError, OverflowError):
        return 0
