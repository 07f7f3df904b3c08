"""How long an attempt may take: as its request says, else as its project says, up to what the operator allows."""

from __future__ import annotations

from attrs import define

from gateway.contract.crawl import CrawlSpec
from gateway.errors import InvalidRequestError
from gateway.projects.catalog import SpiderCatalog
from gateway.projects.environment import ProjectEnvironment

_SETTING = "CLOSESPIDER_TIMEOUT"
#: Seconds that a crawl has which ends itself then, so that it is not stopped at the same moment.
_TO_END = 60


def check_timeout(asked: int, ceiling: int) -> None:
    """Raises `InvalidRequestError`."""
    if asked > ceiling:
        raise InvalidRequestError("timeout", f"at most {ceiling} s are allowed here (JOB_MAX_TIMEOUT)")


@define(eq=False, repr=False, slots=False)
class TimeLimits:
    """In seconds."""

    _catalog: SpiderCatalog
    _environment: ProjectEnvironment
    _job_timeout: int
    _job_max_timeout: int

    def of(self, spec: CrawlSpec) -> int:
        """Of a deployed spider's crawl whose request says nothing: the default, or longer if it ends itself later.

        Raises `UnavailableError`, `StartingError`.
        """
        try:
            info = self._catalog.require(self._catalog.pin(spec))
        except InvalidRequestError:  # what is wrong with it is said when it is submitted
            return self._job_timeout
        ends = [spec.settings.get(_SETTING), self._environment.get(info.project).settings.get(_SETTING), info.timeout]
        end = next((seconds for one in ends if (seconds := _seconds(one))), 0)
        return max(self._job_timeout, min(end + _TO_END, self._job_max_timeout) if end else 0)


def _seconds(value: object) -> int:
    """0 for none, and for what is no number."""
    try:
        return int(float(str(value)))
    except (ValueError, OverflowError):
        return 0
