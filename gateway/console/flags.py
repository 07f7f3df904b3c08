"""Badges for jobs whose runs are not normal for their dataset, with a few words each. They are also
shown in lists.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.access.keys import Caller
from gateway.datasets.dataset import DatasetRun, RunState
from gateway.datasets.judging import FindingCode
from gateway.datasets.store import RunStore
from gateway.errors import UnavailableError
from gateway.stores.mongo import mongo_errors
from gateway.web.container import GatewayParts

#: The words of the badge for each finding about a field.
_WORDS: dict[str, str] = {
    FindingCode.FIELD_LOWER: "rarer than usual",
    FindingCode.FIELD_COLLAPSED: "mostly missing",
    FindingCode.TYPE_FLIPPED: "of another type",
    FindingCode.VALUES_SHIFTED: "of another size",
    FindingCode.VALUES_SAME: "always the same",
}


def flags_of(job_ids: Iterable[str], parts: GatewayParts, caller: Caller) -> dict[str, list[str]]:
    """The badges of these jobs, by job, without those that have none. Empty while the database is away, and for who
    may see some projects: what is normal is known from the runs of all that feed the dataset.
    """
    if caller.projects:
        return {}
    try:
        with mongo_errors():
            runs = parts[RunStore].many(list(job_ids))
    except UnavailableError:
        return {}
    found = {run.job_id: _flags(run) for run in runs}
    return {job_id: flags for job_id, flags in found.items() if flags}


def _flags(run: DatasetRun) -> list[str]:
    fields = [f"{one.field}: {_WORDS[one.code]}" for one in run.findings if one.field and one.code in _WORDS]
    apart = [f"{run.counts.set_apart} set apart"] if run.counts.set_apart else []
    return [*(["held"] if run.state is RunState.HELD else []), *apart, *fields]
