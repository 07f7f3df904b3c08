"""Runs of a site that a client asks for. They are made in the same way as scheduled runs, but the client may name the
search words.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import structlog
from attrs import define

from gateway import errors
from gateway.clock import Clock, utc_now
from gateway.contract.public_address import Network, check_url
from gateway.jobs.admission import Admission
from gateway.jobs.job import Job, Requester, job_id_of, run_id_of
from gateway.jobs.messages import Waker
from gateway.jobs.store import JobStore
from gateway.projects.catalog import WorkCheck
from gateway.schedules.orders import RunOrder
from gateway.sites.crawl import SiteCheck, SiteOrders
from gateway.sites.site import Site
from gateway.sites.store import SiteStore
from gateway.stores.mongo import mongo_errors
from gateway.traced import traced


class SiteRun(NamedTuple):
    """A run of a site."""

    id: str
    job: Job
    #: The site's number; `None` if the site does not exist any more.
    site_number: int | None


@define(eq=False, repr=False, slots=False)
class RunRecords:
    """Finds runs of sites by their ids."""

    _jobs: JobStore
    _sites: SiteStore

    def find(self, run_id: str) -> SiteRun:
        """The run with this id. Raises `RunNotFoundError` if there is none, or if the id's prefix does not match the
        job's trigger; and `UnavailableError`.
        """
        with mongo_errors():
            try:
                job = self._jobs.get(job_id_of(run_id))
            except errors.JobNotFoundError:
                raise errors.RunNotFoundError(run_id) from None
            if run_id_of(job) != run_id:
                raise errors.RunNotFoundError(run_id)
            return SiteRun(run_id, job, self._site_number(job))

    def _site_number(self, job: Job) -> int | None:
        if job.target is not None:
            return job.target.website_id
        with suppress(errors.SiteNotFoundError):
            return self._sites.get(job.spec.site or "").number
        return None


log = structlog.get_logger()

#: The request's fields with search words.
_ASKED = frozenset({"search_term", "location"})


class RequestedRun(NamedTuple):
    """A request for one run of a site."""

    by: Requester
    site: str
    #: Keywords; `None` for the site's own ones.
    search_term: str | None = None
    location: str | None = None
    is_remote: bool | None = None
    results_wanted: int | None = None
    #: Values that replace those in the site's own payload.
    payload: dict[str, Any] = {}  # noqa: RUF012 - never written to


@define(eq=False, repr=False, slots=False, kw_only=True)
class Scraping:
    """Starts runs of sites that clients ask for."""

    _sites: SiteStore
    _orders: SiteOrders
    _jobs: JobStore
    _check: WorkCheck
    _site_check: SiteCheck
    _waker: Waker
    _admission: Admission
    _allowed_networks: Sequence[Network] = ()
    _clock: Clock = utc_now

    @traced("start_run")
    def start(self, order: RequestedRun) -> Job:
        """Start a run. Returns its job, or the earlier job if the idempotency key was used before.

        Raises `SiteNotFoundError`, `SiteDisabledError`, `InvalidRequestError`, `ForbiddenAddressError`,
        `ConflictError` if the site cannot be crawled at present, `IdempotencyConflictError`, `UnavailableError`,
        `TooManyError`.
        """
        with mongo_errors():
            job = self._job(order, self._site(order))
            try:
                with self._admission.room(job.user_id):
                    self._jobs.insert(job)
            except errors.TooManyError:
                if self._find(job) is None:
                    raise
                return self._known(job)
            except errors.IdempotencyConflictError:
                return self._known(job)
            self._waker.wake_job(job)
            log.info("run_asked_for", job_id=job.id, run_id=run_id_of(job), site_name=order.site)
            return job

    def _site(self, order: RequestedRun) -> Site:
        try:
            site = self._sites.get(order.site)
        except errors.SiteNotFoundError as error:
            error.detail = {"field": "site_name", "known": [known.name for known in self._sites.page(200)]}
            raise
        if order.payload:
            site = site.model_copy(update={"payload": {**site.payload, **order.payload}})
            self._site_check.check(site)
        return site

    def _job(self, order: RequestedRun, site: Site) -> Job:
        made = self._made(order, site)
        # without a live key, because two requests for the same search make two runs, one after the other
        return made.to_job(order.by.user_id, self._clock(), **order.by.job_fields())

    def _made(self, order: RequestedRun, site: Site) -> RunOrder:
        """The order. It is checked here, so that the client gets errors that a worker would find later."""
        try:
            made = self._orders.manual(
                site,
                keywords=order.search_term,
                location=order.location,
                results_wanted=order.results_wanted,
                is_remote=order.is_remote,
            )
            check_url("site_name", made.crawl.spec.start_urls[0], self._allowed_networks)
            self._check.means(made.crawl.spec)
        except errors.InvalidRequestError as error:
            if error.field in _ASKED or isinstance(error, errors.ForbiddenAddressError):
                raise
            # the request is valid, but the site cannot be crawled as its record says
            message = f"site {site.name!r} cannot be crawled now: {error.message}"
            raise errors.ConflictError(message, detail=error.detail) from error
        return made

    def _known(self, job: Job) -> Job:
        """The job that the same request has started before. Raises `IdempotencyConflictError` if a different request
        has used the key.
        """
        known = self._find(job)
        if known is None or known.fingerprint != job.fingerprint:
            raise errors.IdempotencyConflictError("Idempotency-Key: it was used before, for another request")
        return known

    def _find(self, job: Job) -> Job | None:
        return self._jobs.find_idempotent(job.idempotency_key) if job.idempotency_key else None
