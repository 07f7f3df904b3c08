"""What to do next, from how a job stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jobs import make_job

from gateway.contract.reasons import Reason
from gateway.jobs import advice as advices
from gateway.jobs.advice import advice
from gateway.jobs.job import JobStatus, WaitingReason

DOCS = Path(__file__).parents[4]


#: Of these there is nothing to be done, or nothing has ended.
WELL = {Reason.COMPLETED, Reason.OWN_LIMIT, Reason.CANCELLED, Reason.PAUSED, Reason.PAUSE_EXPIRED}


@pytest.mark.parametrize("reason", sorted(set(Reason) - WELL))
def test_each_way_to_fail_has_a_next_step(reason: Reason) -> None:
    found = advice(make_job(status=JobStatus.ERROR, reason=reason))
    assert found is not None
    assert found.steps
    assert found is not advices._UNKNOWN


def test_the_words_of_a_message_decide_nothing() -> None:
    job = make_job(status=JobStatus.ERROR, reason=Reason.ROBOTS_FORBIDDEN, message="stopped at its time limit")
    found = advice(job)
    assert found is not None
    assert "robots.txt" in found.what
    assert found == advice(job.model_copy(update={"message": None}))


def test_where_nothing_is_to_be_done_nothing_is_said() -> None:
    for status, reason in (("finished", "completed"), ("cancelled", "cancelled"), ("running", None)):
        assert advice(make_job(status=status, reason=reason)) is None
    # of a newer version, and of an older one
    assert advice(make_job(status=JobStatus.ERROR, reason="of_tomorrow")) is not None
    assert advice(make_job(status=JobStatus.ERROR)) is not None


@pytest.mark.parametrize("reason", [*WaitingReason, None])
def test_each_reason_to_wait_is_explained(reason: WaitingReason | None) -> None:
    found = advice(make_job(waiting_reason=reason))
    assert found is not None
    assert found.steps


def test_the_documentation_has_what_advice_refers_to() -> None:
    jobs = [make_job(status=JobStatus.ERROR, reason=reason) for reason in [*Reason, "of_tomorrow"]]
    jobs += [make_job(waiting_reason=reason) for reason in [*WaitingReason, None]]
    references = {found.reference for job in jobs if (found := advice(job))}
    assert f"docs/troubleshooting.md#{Reason.REQUESTS_FAILED}" in references
    for reference in references:
        path, _, anchor = reference.partition("#")
        headings = re.findall(r"^#+ (.+)$", (DOCS / path).read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, reference


def test_the_documentation_explains_each_reason() -> None:
    headings = re.findall(r"^### `(\w+)`$", (DOCS / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    assert headings == [reason.value for reason in Reason]
